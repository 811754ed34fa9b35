"""Labels out of the cells of a table: names, numbers, lists, columns of yes and no."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from weft.errors import InputError
from weft.tasks.example import Unusable

_YES, _NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no", ""}
_MOST_LABELS = 10_000


def read_label(value: Any) -> str:
    """One label. Numbers keep their looks: 1 and 1.0 of a table are both 1."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unusable("has no label (it is not a number)")
        value = int(value) if value.is_integer() else value
    if not isinstance(value, str | int | float):
        raise Unusable("has no label" if value is None else f"has a label of type {type(value).__name__}")
    label = str(value).strip()
    if not label or label.lower() == "nan":
        raise Unusable("has no label")
    return label


def read_labels(value: Any, separator: str | None) -> tuple[str, ...]:
    """Any number of labels: a list, or names with something between them. None at all is an answer, too."""
    if isinstance(value, str):
        value = value.split(separator) if separator else [value]
        value = [part for part in value if part.strip()]
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise Unusable(f"has labels of type {type(value).__name__}, not a list")
    return tuple(sorted({read_label(part) for part in value}))


def read_flags(values: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    """A column for each label, with 1 or 0 in it."""
    if not isinstance(values, list | tuple) or len(values) != len(names):
        raise Unusable(f"has no column for each label ({', '.join(names)})")
    found = []
    for value, name in zip(values, names, strict=True):
        cell = str(value).strip().lower() if value is not None else ""
        if cell not in _YES | _NO:
            raise Unusable(f"has {cell!r} as {name}, which is neither 1 nor 0")
        if cell in _YES:
            found.append(name)
    return tuple(sorted(found))


def read_number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Unusable(f"has {value!r} as {what}, which is no number" if value else f"has no {what}") from None
    if not math.isfinite(number):
        raise Unusable(f"has {value!r} as {what}, which is no finite number")
    return number


def read_text(value: Any, what: str = "text") -> str:
    if isinstance(value, str) and (text := value.strip()):
        refuse_halves(text)
        return text
    if value is None or isinstance(value, str):
        raise Unusable(f"has an empty {what}")
    raise Unusable(f"has a {what} of type {type(value).__name__}")


def refuse_halves(text: str) -> None:
    """Bytes of a command line that are not in its encoding come as halves of characters, which no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unusable(f"is not Unicode at character {error.start + 1}") from None


def label_set(found: Iterable[str]) -> tuple[str, ...]:
    """In a fixed order: numbers by size, names by the alphabet."""
    names = set(found)
    if len(names) > _MOST_LABELS:
        raise InputError(
            f"There are {len(names):,} different labels; at most {_MOST_LABELS:,} make sense. Is it the right column?"
        )
    try:
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    except ValueError:
        return tuple(sorted(names))


def with_unseen(labels: Sequence[str], golds: Iterable[str]) -> tuple[str, ...]:
    """And after them those of the gold that are not among them: nobody can answer with these."""
    return (*labels, *sorted(set(golds) - set(labels)))


def balance(counts: Counter[str], labels: Sequence[str]) -> list[float]:
    """Weights that make every class count alike, 1 on average over the examples."""
    total = sum(counts.values())
    return [total / (len(labels) * max(counts[label], 1)) for label in labels]
