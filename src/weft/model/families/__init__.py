"""Model families with their published sizes.

A family is a frozen dataclass of its settings (`Bert(layers=4, width=256, heads=4)`). `architecture(head, labels)`
returns the `Architecture`. `FAMILIES` lists them by the name that recipes use.
"""

from typing import Any

from weft.errors import RecipeError, suggest
from weft.model.families.bert import Bert, DistilBert, Roberta
from weft.model.families.family import Family, with_positions
from weft.model.families.gpt2 import Gpt2
from weft.model.families.llama import Llama, Qwen3
from weft.model.families.lstm import Lstm
from weft.model.families.modernbert import ModernBert
from weft.model.families.t5 import T5
from weft.model.families.transformer import Transformer
from weft.model.network import Architecture
from weft.model.positions import longest

FAMILIES: dict[str, type[Family]] = {
    family.name: family for family in (Transformer, Bert, Roberta, DistilBert, Gpt2, T5, Llama, Qwen3, ModernBert, Lstm)
}


def find_family(name: str) -> type[Family]:
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise RecipeError(f"There is no model family {name!r}{suggest(name, FAMILIES)}. Families: {known}.")
    return FAMILIES[name]


def design(
    family: str,
    size: str | None = None,
    *,
    head: str | None = None,
    labels: int = 2,
    positions: str | int | None = None,
    **knobs: Any,
) -> tuple[Family, Architecture]:
    """A family's settings and its architecture. `positions`: another position encoding by name, or a maximum length."""
    if not isinstance(labels, int) or labels < 1:
        raise RecipeError(f"labels must be a number of at least 1, not {labels!r}.")
    if isinstance(positions, int):
        knobs["positions"], positions = positions, None
    chosen = find_family(family).sized(size, **knobs)
    architecture = chosen.architecture(head, labels)
    if positions is not None:
        limit = longest(architecture.embedding.positions)
        architecture = with_positions(architecture, positions, 512 if limit is None else limit)
    return chosen, architecture


__all__ = ["FAMILIES", "Family", "design", "find_family"]
