"""The base class of families: settings, published sizes, a default head, and `architecture()`."""

from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from weft.errors import RecipeError, suggest
from weft.model.attention import AttentionSpec
from weft.model.heads import HeadSpec
from weft.model.network import Architecture
from weft.model.positions import Learned, Positions, Relative, Rotary, Sinusoidal

# Larger values are typing errors or hostile files.
LARGEST_SETTINGS = {
    "layers": 1_000,
    "decoder_layers": 1_000,
    "width": 131_072,
    "heads": 4_096,
    "vocabulary": 10_000_000,
}
_LARGEST_OTHERWISE = 10_000_000


@dataclass(frozen=True)
class Family:
    name: ClassVar[str]
    sizes: ClassVar[dict[str, dict[str, Any]]]
    default_head: ClassVar[str]

    vocabulary: int
    layers: int
    width: int
    dropout: float
    tied: bool

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for knob in fields(self):
            value = getattr(self, knob.name)
            if float in (types[knob.name], *get_args(types[knob.name])) and value is not None:
                self._check_number(knob.name, value)
                continue
            least = 0 if knob.name in _ZERO_ALLOWED else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise RecipeError(f"{self.name}: {knob.name} must be at least {least}, not {value}.")
            if isinstance(value, int) and value > (most := LARGEST_SETTINGS.get(knob.name, _LARGEST_OTHERWISE)):
                raise RecipeError(f"{self.name}: {knob.name} {value:,} is more than {most:,}.")
            if isinstance(value, list):  # from YAML
                object.__setattr__(self, knob.name, tuple(value))

    def _check_number(self, name: str, value: float) -> None:
        """Refuse NaN, infinity and negative numbers, dropout of 1 or more, and a theta of 0."""
        least = 1e-30 if "theta" in name else 0.0
        most = 1.0 if "dropout" in name else 1e12
        if not least <= value < most:  # false for NaN, too
            raise RecipeError(f"{self.name}: {name} must be at least 0 and below {most:g}, not {value}.")
        object.__setattr__(self, name, float(value))

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        """The architecture with this head. Default: the family's language-model head."""
        raise NotImplementedError

    @classmethod
    def sized(cls, size: str | None = None, /, **knobs: Any) -> Self:
        """A published size by name, with single settings changed: `Bert.sized("mini", vocabulary=8000)`."""
        if size is not None and size not in cls.sizes:
            known = ", ".join(cls.sizes)
            raise RecipeError(f"{cls.name} has no size {size!r}{suggest(size, cls.sizes)}. Sizes: {known}.")
        types = get_type_hints(cls)
        names = [knob.name for knob in fields(cls)]
        for knob, value in knobs.items():
            if knob not in names:
                raise RecipeError(f"{cls.name} has no setting {knob!r}{suggest(knob, names)}.")
            if not _fits(value, types[knob]):
                raise RecipeError(f"{cls.name}: {knob} cannot be {value!r}; it is {_describe(types[knob])}.")
        return cls(**{**(cls.sizes[size] if size else {}), **knobs})

    def unknown_head(self, head: str, known: list[str]) -> RecipeError:
        return RecipeError(f"{self.name} has no head {head!r}{suggest(head, known)}. Heads: {', '.join(known)}.")


_ZERO_ALLOWED = {"segments", "pad"}


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def _describe(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_describe(option) for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    return {int: "an integer", float: "a number", bool: "true or false"}.get(
        kind, "a list" if get_origin(kind) is tuple else str(kind)
    )


def head_width(family: str, width: int, heads: int, given: int | None = None) -> int:
    """`given`, or width / heads. Raises RecipeError if that is not an integer."""
    if given is not None:
        return given
    if width % heads:
        raise RecipeError(f"{family}: width {width} is not a multiple of {heads} heads.")
    return width // heads


def plain_attention(heads: int, head_width: int, *, bias: bool, dropout: float) -> AttentionSpec:
    """Multi-head attention with as many key/value heads as query heads."""
    return AttentionSpec(heads, head_width, heads, bias=bias, out_bias=bias, dropout=dropout)


def token_head(kind: str, labels: int, dropout: float = 0.0) -> HeadSpec:
    """A label per token, or start and end of a span."""
    return HeadSpec("span", 2) if kind == "span" else HeadSpec("token", labels, dropout=dropout)


def with_positions(architecture: Architecture, kind: str, longest: int) -> Architecture:
    """The same architecture with other positions: learned, sinusoidal, rotary or relative."""
    makers: dict[str, Positions] = {
        "learned": Learned(longest),
        "sinusoidal": Sinusoidal(longest),
        "rotary": Rotary(longest),
        "relative": Relative(),
    }
    if kind not in makers:
        raise RecipeError(f"There are no positions {kind!r}{suggest(kind, makers)}. Positions: {', '.join(makers)}.")
    if architecture.recurrent is not None:
        raise RecipeError("An LSTM has no position encoding: leave out model.positions.")
    stacks = [stack for stack in (architecture.encoder, architecture.decoder) if stack is not None]
    for width in (block.attention.head_width for stack in stacks for block in stack.blocks):
        if kind == "rotary" and width % 2:
            raise RecipeError(f"Rotary positions need an even head width, not {width}.")
    if type(makers[kind]) is type(architecture.embedding.positions):
        return architecture
    return replace(architecture, embedding=replace(architecture.embedding, positions=makers[kind]))
