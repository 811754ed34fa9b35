"""Values of the cells of a row: labels, lists of labels, flags, numbers, texts. Bad values raise Unusable."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from weft.errors import InputError
from weft.tasks.example import Unusable

_YES, _NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no", ""}
_MOST_LABELS = 10_000


def read_label(value: Any) -> str:
    """One label as a string. 1 and 1.0 are both "1"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unusable("has no label (NaN)")
        value = int(value) if value.is_integer() else value
    if not isinstance(value, str | int | float):
        raise Unusable(
            "has no label"
            if value is None
            else f"has a label of type {type(value).__name__} instead of a text or a number"
        )
    label = str(value).strip()
    if not label or label.lower() == "nan":
        raise Unusable("has no label")
    return label


def read_labels(value: Any, separator: str | None) -> tuple[str, ...]:
    """Any number of labels, also none: a list, or names with a separator between them."""
    if isinstance(value, str):
        value = value.split(separator) if separator else [value]
        value = [part for part in value if part.strip()]
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise Unusable(f"has labels of type {type(value).__name__} instead of a list")
    return tuple(sorted({read_label(part) for part in value}))


def read_flags(values: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns that have a 1. Each column must have 1 or 0."""
    if not isinstance(values, list | tuple) or len(values) != len(names):
        raise Unusable(f"lacks one of the label columns {', '.join(names)}")
    found = []
    for value, name in zip(values, names, strict=True):
        cell = str(value).strip().lower() if value is not None else ""
        if cell not in _YES | _NO:
            raise Unusable(f"has {cell!r} in column {name} instead of 1 or 0")
        if cell in _YES:
            found.append(name)
    return tuple(sorted(found))


def read_number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Unusable(f"has the {what} {value!r}, which is not a number" if value else f"has no {what}") from None
    if not math.isfinite(number):
        raise Unusable(f"has the {what} {value!r}, which is not finite")
    return number


def read_text(value: Any, what: str = "text") -> str:
    if isinstance(value, str) and (text := value.strip()):
        refuse_surrogates(text)
        return text
    if value is None or isinstance(value, str):
        raise Unusable(f"has an empty {what}")
    raise Unusable(f"has a {what} of type {type(value).__name__} instead of a text")


def refuse_surrogates(text: str) -> None:
    """Raises Unusable for lone surrogates, which no tokenizer reads. Undecodable command-line bytes become such."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unusable(f"is not valid Unicode at character {error.start + 1}") from None


def label_set(found: Iterable[str]) -> tuple[str, ...]:
    """In a fixed order: numbers by size, names by the alphabet. Raises InputError if there are too many."""
    names = set(found)
    if len(names) > _MOST_LABELS:
        raise InputError(
            f"There are {len(names):,} different labels; at most {_MOST_LABELS:,} are allowed. Is it the right column?"
        )
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))


def with_unseen(labels: Sequence[str], gold: Iterable[str]) -> tuple[str, ...]:
    """The labels, then those that only occur in the gold values. The model cannot predict the latter."""
    return (*labels, *sorted(set(gold) - set(labels)))


def balance(counts: Counter[str], labels: Sequence[str]) -> list[float]:
    """Class weights that make every class count the same, with mean 1 over the examples."""
    total = sum(counts.values())
    return [total / (len(labels) * max(counts[label], 1)) for label in labels]
