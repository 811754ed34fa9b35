"""Labelled data that a command names: its columns, and the examples in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import InputError, suggest
from weft.progress import say
from weft.recipe.file import check_section
from weft.recipe.finetune import DataSection
from weft.sources.encoding import codec_of
from weft.sources.formats.catalog import ending_of
from weft.sources.standard_input import is_standard_input
from weft.tasks.labelled.data import LabelledSplit, checked_split, named, read_split
from weft.tasks.learning.splits import say_problems
from weft.tasks.loaded import LoadedModel

_UTF8 = "utf-8"


def given_columns(options: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    """The values of --column, by role."""
    found = {}
    for option in options:
        role, equals, column = option.partition("=")
        if not equals or not column:
            raise InputError(f"--column {option!r} is not role=column, such as {roles[0]}=sentence.")
        if role not in roles:
            raise InputError(
                f"--column {option}: there is no role {role}{suggest(role, roles)}. There are: {', '.join(roles)}."
            )
        found[role] = column
    return found


def given_section(
    columns: Mapping[str, str], encoding: str | None, format: str | None, model: LoadedModel, paths: Sequence[Path]
) -> DataSection:
    """How the data is read. Columns that are not named now are those of the recipe the model was tuned with; its names
    for the columns of tables without a header only count if none is named now. Its encoding and format count for files
    with the endings of its own.
    """
    roles, data = model.required_task.roles, data_in_recipe(model)
    kept = {
        key: value for key, value in data.items() if key in (*roles, "labels") or (key == "columns" and not columns)
    }
    alike = data if _has_endings_of(data, paths) else {}
    chosen = check_section(DataSection, {"format": format}, "--format").format
    read = {"encoding": alike.get("encoding", _UTF8) if encoding is None else encoding}
    read |= {"format": chosen or alike.get("format")}
    section = check_section(DataSection, {**kept, **columns, **read}, "--column")
    if encoding is None and codec_of(section.encoding) != codec_of(_UTF8):
        say(f"{named(paths)} is read as {section.encoding}, like the data that the model was tuned with.")
    return section


def _has_endings_of(data: Mapping[str, Any], paths: Sequence[Path]) -> bool:
    """Whether these files are called like those of a recipe."""
    said = [data.get(split) for split in ("train", "validation", "test")]
    names = [name for one in said for name in (one if isinstance(one, list) else [one]) if isinstance(name, str)]
    endings = {ending_of(name) for name in names}
    return all(ending_of(path.name) in endings and not is_standard_input(path) for path in paths)


def data_in_recipe(model: LoadedModel) -> dict[str, Any]:
    """The data of the recipe that the model was tuned or distilled with. weft.json may be anybody's."""
    recipe: Any = model.facts.get("recipe")
    sections = [recipe.get(name) for name in ("finetune", "distil")] if isinstance(recipe, dict) else []
    found = [section.get("data") for section in sections if isinstance(section, dict)]
    return next((data for data in found if isinstance(data, dict)), {})


def read_given(model: LoadedModel, paths: Sequence[Path], section: DataSection) -> LabelledSplit:
    split = checked_split(model.required_task, read_split(model.required_task, paths, section))
    say_problems(split)
    return split
