"""Names for labels and tags that the data has as numbers, from `finetune.data.labels`."""

from collections.abc import Sequence
from typing import Any

from weft.sources.formats.class_names import whole_number
from weft.tasks.example import Unusable

_NAMED_ROLES = ("label", "tags", "intent")


def with_names(values: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The values of a row by role, with numbers replaced by names."""
    if names is None:
        tags = values.get("tags")
        if isinstance(tags, list) and tags and all(isinstance(tag, int) for tag in tags):
            raise Unusable("has tags that are numbers; give their names with finetune.data.labels: [O, B-PER, …]")
        return values
    return {role: _named(value, names, role) if role in _NAMED_ROLES else value for role, value in values.items()}


def _named(value: Any, names: Sequence[str], role: str) -> Any:
    if role == "tags" and isinstance(value, str):
        value = value.split()
    if isinstance(value, list):
        return [_named(item, names, "") for item in value]
    number = whole_number(value)
    if number is None or value in names:
        return value
    if number == -1:  # a test set whose labels are not public
        return None
    if not 0 <= number < len(names):
        raise Unusable(f"has the label {number}, but finetune.data.labels only names 0 to {len(names) - 1}")
    return names[number]
