"""Labels and tags that the data has as numbers, with the names that `finetune.data.labels` gives them."""

from collections.abc import Sequence
from typing import Any

from weft.sources.formats.class_names import whole_number
from weft.tasks.example import Unusable

NAMED = ("label", "tags", "intent")  # roles whose values are names


def with_names(values: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The values of a row by role, with names in place of numbers."""
    if names is None:
        tags = values.get("tags")
        if isinstance(tags, list) and tags and all(isinstance(tag, int) for tag in tags):
            raise Unusable("has tags that are numbers; say their names with finetune.data.labels: [O, B-PER, …]")
        return values
    return {role: _named(value, names, role) if role in NAMED else value for role, value in values.items()}


def _named(value: Any, names: Sequence[str], role: str) -> Any:
    if role == "tags" and isinstance(value, str):
        value = value.split()
    if isinstance(value, list):
        return [_named(item, names, "") for item in value]
    number = whole_number(value)
    if number is None or value in names:
        return value
    if number == -1:  # of a test set whose labels are kept back
        return None
    if not 0 <= number < len(names):
        raise Unusable(f"has the label {number}, and finetune.data.labels names 0 to {len(names) - 1}")
    return names[number]
