"""The base of all sections of a recipe: unknown keys and wrong types are errors."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict

SectionKind = TypeVar("SectionKind", bound=BaseModel)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def exactly_one(section: SectionKind, first: str, second: str) -> SectionKind:
    """Raises ValueError unless exactly one of the two settings is given."""
    given = [name for name in (first, second) if getattr(section, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give {first} or {second}{', not both' if given else ''}")
    return section
