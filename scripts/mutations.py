"""Small mistakes in Python source: each is the whole module with one change in the given lines."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence

Change = Callable[[ast.AST], ast.AST]

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
_EXCHANGED = {
    "sin": "cos", "cos": "sin", "max": "min", "min": "max", "amax": "amin", "maximum": "minimum", "log": "exp",
    "exp": "log", "exp_": "log_", "sum": "mean", "mean": "sum", "cumsum": "cumprod", "argmax": "argmin", "any": "all",
    "all": "any", "ceil": "floor", "floor": "ceil", "add_": "sub_", "sub_": "add_", "mul_": "div_",
    "addcmul_": "addcdiv_", "addcdiv_": "addcmul_", "softmax": "log_softmax", "log_softmax": "softmax",
}  # fmt: skip
_KEPT_CALLS = {
    "float",
    "double",
    "cpu",
    "to",
    "detach",
    "contiguous",
    "clone",
    "tolist",
    "item",
    "int",
    "long",
    "view_as",
}


def mutations_of(source: str, lines: range) -> Iterator[tuple[str, ast.Module]]:
    """("before → after", the changed module) for every small mistake in these lines."""
    tree = ast.parse(source)
    for path, node in _walk(tree, ()):
        if getattr(node, "lineno", None) not in lines or (getattr(node, "end_lineno", 0) or 0) >= lines.stop:
            continue
        for new in _changes(node):
            changed = copy.deepcopy(tree)
            _put(changed, path, new)
            ast.fix_missing_locations(changed)
            yield f"{_short(node)} → {_short(new)}", changed


def _walk(
    node: ast.AST, path: tuple[tuple[str, int | None], ...]
) -> Iterator[tuple[Sequence[tuple[str, int | None]], ast.AST]]:
    yield path, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(value, ast.AST):
            yield from _walk(value, (*path, (name, None)))
        elif isinstance(value, list):
            for place, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield from _walk(child, (*path, (name, place)))


def _put(tree: ast.AST, path: Sequence[tuple[str, int | None]], new: ast.AST) -> None:
    *outer, (name, place) = path
    for step, index in outer:
        tree = getattr(tree, step) if index is None else getattr(tree, step)[index]
    if place is None:
        setattr(tree, name, new)
    else:
        getattr(tree, name)[place] = new


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            if other := _OPERATORS.get(type(op)):
                yield ast.BinOp(left, other(), right)
            if isinstance(op, ast.MatMult | ast.Sub | ast.Div):
                yield ast.BinOp(right, op, left)
            yield left
            if not isinstance(op, ast.Pow | ast.Div | ast.FloorDiv | ast.Mod):
                yield right
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in _COMPARISONS.get(type(op), ()):
                yield ast.Compare(left, [other()], [right])
        case ast.Compare(left=left, ops=[first, second], comparators=[middle, right]):
            yield ast.Compare(left, [first], [middle])
            yield ast.Compare(middle, [second], [right])
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.If(test=test, body=body, orelse=orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from _shifted_slices(lower, upper, step)
        case ast.Attribute(value=value, attr="T" | "mT", ctx=ast.Load()):
            yield value
        case ast.Call():
            yield from _changed_calls(node)
        case ast.AugAssign(target=target, op=op, value=value):
            if other := _OPERATORS.get(type(op)):
                yield ast.AugAssign(target, other(), value)
            yield ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _shifted_slices(lower: ast.expr | None, upper: ast.expr | None, step: ast.expr | None) -> Iterator[ast.AST]:
    """By one; numbers are shifted as constants."""
    one = ast.Constant(1)
    if lower is not None and not isinstance(lower, ast.Constant):
        yield ast.Slice(ast.BinOp(lower, ast.Add(), one), upper, step)
    if upper is not None and not isinstance(upper, ast.Constant | ast.UnaryOp):
        yield ast.Slice(lower, ast.BinOp(upper, ast.Sub(), one), step)


def _changed_calls(node: ast.Call) -> Iterator[ast.AST]:
    match node.func:
        case ast.Attribute(value=value, attr=name):
            if other := _EXCHANGED.get(name):
                yield ast.Call(ast.Attribute(value, other, ast.Load()), node.args, node.keywords)
            is_module = isinstance(value, ast.Name) and value.id in ("torch", "np", "math", "F")
            if is_module and node.args and name in _EXCHANGED:
                yield node.args[0]
            elif not is_module and name not in _KEPT_CALLS:
                yield value  # the call is left out
        case ast.Name(id=name):
            if other := _EXCHANGED.get(name):
                yield ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)
                if len(node.args) > 1:
                    yield from node.args


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return "nothing" if isinstance(node, ast.Pass) else ast.unparse(node)
