"""How a compressed model came about: the steps that its weft.json lists under `compressed`, the oldest first.

    "compressed": [{"method": "distil", "from": "runs/teacher/model", "layers": 3},
                   {"method": "quantize", "from": "runs/student/model", "bits": 8}]

A command that writes a compressed model adds its step with `with_step`; the card shows the steps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

LINEAGE = "compressed"  # the key in weft.json


def compression_steps(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps in a model's weft.json. The file may be anybody's, so what is not a step is no error."""
    found = facts.get(LINEAGE)
    steps = found if isinstance(found, list) else []
    return [step for step in steps if isinstance(step, dict) and isinstance(step.get("method"), str)]


def with_step(facts: Mapping[str, Any], method: str, source: Path, **details: Any) -> list[dict[str, Any]]:
    """The steps of a new model. `facts`: the weft.json of the model in `source` that it was made from."""
    return [*compression_steps(facts), {"method": method, "from": str(source), **details}]


def title_of(step: Mapping[str, Any]) -> str:
    """A step in a word or two, such as distil, prune or int8."""
    if step["method"] == "quantize" and isinstance(step.get("bits"), int):
        return f"int{step['bits']}"
    return str(step["method"])
