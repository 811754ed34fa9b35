"""Lines of weft's source, found by name. Nothing is copied by hand: moved lines are found again, a renamed function is
an error.
"""

import ast
import importlib.util
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from inspect import getsource, unwrap
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.theory.entry import SourceLines
from weft.theory.places import PACKAGE


class LinesMissing(WeftError):
    """The guide names a function or statement that the source does not have."""


@dataclass(frozen=True)
class Excerpt:
    file: Path
    name: str  # of the function, with its class
    first: int  # line numbers, from 1
    last: int
    text: str  # without common indentation

    @property
    def path(self) -> str:
        """Within the package: model/attention.py."""
        return self.file.relative_to(PACKAGE).as_posix()


def excerpt(part: SourceLines) -> Excerpt:
    module, _, name = part.where.partition(":")
    file, tree = _parsed(module)
    node = definition_in(tree, name)
    if node is None:
        raise LinesMissing(f"{module} has no {name}, which the theory guide shows.")
    begin, end = _range_of(node, part)
    lines = file.read_text("utf-8").splitlines()[begin - 1 : end]
    return Excerpt(file, name, begin, end, textwrap.dedent("\n".join(lines)))


def definition_in(tree: ast.AST, name: str) -> ast.stmt | None:
    """The function, class or assignment of this name; `Class.method` for methods."""
    node: Any = tree
    for step in name.split("."):
        node = next((child for child in node.body if step in _names_of(child)), None)
        if node is None:
            return None
    return node  # type: ignore[no-any-return]


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _range_of(node: ast.stmt, part: SourceLines) -> tuple[int, int]:
    if not part.first:
        decorators = getattr(node, "decorator_list", [])
        return min([node.lineno, *(one.lineno for one in decorators)]), _end(node)
    first = _statement(node, part.first, part)
    last = _statement(node, part.last, part) if part.last else first
    return first.lineno, _end(last)


def _statement(node: ast.stmt, beginning: str, part: SourceLines) -> ast.stmt:
    file, _ = _parsed(part.where.partition(":")[0])
    lines = file.read_text("utf-8").splitlines()
    found = [one for one in _statements(node) if lines[one.lineno - 1].strip().startswith(beginning)]
    if len(found) != 1:
        raise LinesMissing(f"{part.where} has {len(found)} statements that begin with {beginning!r}; one is needed.")
    return found[0]


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    return (one for one in ast.walk(node) if isinstance(one, ast.stmt) and one is not node)


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


@cache
def _parsed(module: str) -> tuple[Path, ast.Module]:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise LinesMissing(f"There is no module {module}, which the theory guide shows.")
    file = Path(found.origin)
    return file, ast.parse(file.read_text("utf-8"))


def source_of(function: Callable[..., Any]) -> str:
    """An as-written function, as it stands in the chapter's module."""
    return textwrap.dedent(getsource(unwrap(function))).rstrip()
