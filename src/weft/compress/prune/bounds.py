"""What is asked for: `speedup=2x`, `size=20MB`, `layers=4`, `inner=0.5`, `heads=6` … as given on the command line."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import InputError, suggest

_SPEEDUP = re.compile(r"(\d+(?:\.\d+)?)\s*[x×]?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|m|g)b", re.IGNORECASE)
_BYTES = {"k": 10**3, "m": 10**6, "g": 10**9}
_EXAMPLES = {
    "speedup": "2x",
    "size": "20MB",
    "layers": "4",
    "inner": "0.5 (a share) or 768 (neurons)",
    "heads": "6, 0.5 (a share), or uneven:0.5 (in weft's own format)",
    "weights": "0.5, the share of the weights that stay",
    "vocabulary": "a file or folder with text",
}


@dataclass(frozen=True)
class Bounds:
    speedup: float | None = None  # times, measured on this machine
    size: int | None = None  # bytes of the weights file
    layers: int | None = None  # of each stack
    inner: float | int | None = None  # a share (float) or a number (int) of the neurons of a layer
    heads: float | int | None = None
    uneven_heads: float | None = None  # share of all heads; layers may keep different numbers
    weights: float | None = None  # share of the weights in the layers that stay
    vocabulary: Path | None = None  # text whose tokens stay

    @property
    def cuts_layers(self) -> bool:
        """Whether layers, neurons or heads go."""
        return any(value is not None for value in (self.speedup, self.size, self.layers, self.inner, self.heads))

    @property
    def needs_data(self) -> bool:
        return self.cuts_layers or self.uneven_heads is not None or self.weights is not None

    @property
    def is_free(self) -> bool:
        """Whether a bound leaves the shape open."""
        return self.speedup is not None or self.size is not None


def read_bounds(given: Sequence[str] | Mapping[str, Any]) -> Bounds:
    """From `key=value` arguments, or from Python's keywords."""
    pairs = _pairs(given)
    if not pairs:
        raise InputError("Say what to prune, such as speedup=2x, size=20MB, layers=4 or inner=0.5.")
    found: dict[str, Any] = {}
    for key, text in pairs.items():
        if key not in _READ:
            raise InputError(f"There is no bound {key}{suggest(key, _READ)}. Bounds: {', '.join(_READ)}.")
        found |= _READ[key](text)
    bounds = Bounds(**found)
    if bounds.uneven_heads is not None and bounds.is_free:
        raise InputError("heads=uneven: saves no time, so it goes without speedup= and size=.")
    return bounds


def _pairs(given: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {key: str(value) for key, value in given.items() if value is not None}
    pairs: dict[str, str] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not value:
            example = _EXAMPLES.get(key, "2x")
            raise InputError(f"{one!r} is not key=value, such as {key if key in _EXAMPLES else 'speedup'}={example}.")
        if key in pairs:
            raise InputError(f"{key} is given twice: {key}={pairs[key]} and {one}.")
        pairs[key] = value
    return pairs


def _wrong(key: str, text: str, why: str = "") -> InputError:
    return InputError(f"{key}={text} cannot be used{why}. Example: {key}={_EXAMPLES[key]}.")


def _speedup(text: str) -> dict[str, Any]:
    found = _SPEEDUP.fullmatch(text.strip())
    if found is None:
        raise _wrong("speedup", text)
    if float(found[1]) <= 1:
        raise _wrong("speedup", text, ": a pruned model is faster than 1x")
    return {"speedup": float(found[1])}


def _size(text: str) -> dict[str, Any]:
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise _wrong("size", text)
    return {"size": int(float(found[1]) * _BYTES[found[2].lower()])}


def _layers(text: str) -> dict[str, Any]:
    if not text.isdecimal() or int(text) < 1:
        raise _wrong("layers", text, ": it is the number of layers that stay, at least 1")
    return {"layers": int(text)}


def _share_or_count(key: str, text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise _wrong(key, text) from None
    if text.isdecimal() and value >= 1:
        return int(text)
    if not 0 < value <= 1:
        raise _wrong(key, text, ": a share is more than 0 and at most 1")
    return value


def _heads(text: str) -> dict[str, Any]:
    kind, colon, share = text.partition(":")
    if not colon:
        return {"heads": _share_or_count("heads", text)}
    value = _share_or_count("heads", share) if kind == "uneven" else None
    if not isinstance(value, float):
        raise _wrong("heads", text)
    return {"uneven_heads": value}


def _weights(text: str) -> dict[str, Any]:
    value = _share_or_count("weights", text)
    if not isinstance(value, float) or value == 1:
        raise _wrong("weights", text, ": it is a share between 0 and 1")
    return {"weights": value}


_READ: dict[str, Callable[[str], dict[str, Any]]] = {
    "speedup": _speedup,
    "size": _size,
    "layers": _layers,
    "inner": lambda text: {"inner": _share_or_count("inner", text)},
    "heads": _heads,
    "weights": _weights,
    "vocabulary": lambda text: {"vocabulary": Path(text)},
}
