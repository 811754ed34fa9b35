"""Class names of Parquet files: Hugging Face's `datasets` stores labels as numbers, and their names in the schema."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_INTEGER = re.compile(r"-?\d{1,18}")


def whole_number(value: Any) -> int | None:
    """The label as an integer. Returns None if it is not one."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def names_in_schema(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Class names by column, for the columns that have some."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        found = {column: _class_names(feature) for column, feature in features.items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}
    return {column: names for column, names in found.items() if names}


def _class_names(feature: Any) -> list[str]:
    """Of a ClassLabel, or a list of them: {"feature": {…}, "_type": "Sequence"}, or [{…}] in old files."""
    if isinstance(feature, list) and len(feature) == 1:
        return _class_names(feature[0])
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        return _class_names(feature["feature"])
    names = feature.get("names") if isinstance(feature, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def named_columns(values: dict[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The values with class names for numbers. A number without a name stays as it is; -1 becomes None."""
    return {column: _looked_up(value, names[column]) if column in names else value for column, value in values.items()}


def _looked_up(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_looked_up(item, names) for item in value]
    number = None if isinstance(value, str) else whole_number(value)
    if number == -1:
        return None
    return value if number is None or not 0 <= number < len(names) else names[number]
