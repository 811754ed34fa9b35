"""Mistakes in the later sections of a recipe, found before `weft run` trains anything.

The shape of the chain's models is followed as far as the recipe tells it: the model that is trained or named, then its
student, which is pruned.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weft.commands.compress_stages import compression_in, listed, stage_recipe
from weft.compress.distil.augment import check_augment_settings
from weft.compress.distil.check import check_distil, check_teacher_shape, check_without_teacher
from weft.compress.distil.shape import student_architecture, student_shape
from weft.compress.prune.bounds import read_bounds
from weft.errors import FolderError, InputError, RecipeError
from weft.folders import known_facts
from weft.interchange.folder import read_outline
from weft.interchange.quantized_entries import why_not_fp32
from weft.model.families import Family, design
from weft.model.network import Architecture
from weft.recipe.compress import PruneSection
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.sources.places import locate
from weft.train.budget import read_budget
from weft.train.plan.scaling import ladder


@dataclass(frozen=True)
class _Shape:
    family: Family | None  # None: weft's own format
    architecture: Architecture


def check_compression(recipe: Recipe, base: Path, folder: Path) -> None:
    """Raises InputError for what can be found wrong before any training. `folder`: that of the run."""
    _check_files(recipe, base)
    stages = compression_in(recipe)
    if not stages:
        return
    if recipe.pretrain is None and recipe.finetune is None and _named_model(recipe, stages[0]) is None:
        key = "teacher" if stages[0] == "distil" else "model"
        raise RecipeError(f"{stages[0]}.{key} is missing: the recipe trains no model before, so give a model folder.")
    shape = _trained_shape(recipe, base)
    if recipe.distil is not None:
        shape = _check_distil(recipe, base, folder, shape)
    if recipe.prune is not None:
        _check_prune(recipe.prune, base, shape)
    if recipe.quantize is not None and recipe.quantize.tune is not None:
        read_budget(recipe.quantize.tune, "quantize.tune")
    if recipe.quantize is not None and recipe.quantize.model is not None:
        _shape_in(base / recipe.quantize.model)


def _named_model(recipe: Recipe, stage: str) -> str | None:
    section = getattr(recipe, stage)
    return section.teacher if stage == "distil" else section.model


def _check_files(recipe: Recipe, base: Path) -> None:
    for key, path in _named_files(recipe):
        if not (base / path.partition("::")[0]).exists():
            raise RecipeError(f"{key}: {base / path} does not exist.")
    for stage in ("finetune", "distil"):
        data = getattr(getattr(recipe, stage), "data", None)
        for split in ("train", "validation", "test") if data is not None else ():
            for path in listed(getattr(data, split)):
                try:
                    locate(base / path)
                except InputError as error:
                    raise RecipeError(f"{stage}.data.{split}: {error}") from None


def _named_files(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Models, and data that is no pattern."""
    keys = {
        "distil": ("teacher", "student"),
        "prune": ("model", "data", "vocabulary"),
        "quantize": ("model", "data"),
        "compare": ("data",),
    }
    for stage, names in keys.items():
        section = getattr(recipe, stage)
        for name in names if section is not None else ():
            said = getattr(section, name)
            yield from ((f"{stage}.{name}", path) for path in listed(said if isinstance(said, str | list) else None))
    if recipe.distil is not None and recipe.distil.augment and recipe.distil.augment.model is not None:
        yield "distil.augment.model", recipe.distil.augment.model


def _trained_shape(recipe: Recipe, base: Path) -> _Shape | None:
    """Of the model that the recipe trains. None if there is none, or if the budget decides its size."""
    model: str | ModelSection | None = recipe.model if recipe.pretrain is not None else None
    if recipe.finetune is not None and recipe.finetune.model:
        model = recipe.finetune.model
    if isinstance(model, str):
        return _shape_in(base / model)
    if model is None or (model is recipe.model and len(ladder(model)) > 1):
        return None
    if model.path is not None:
        return _shape_in(base / model.path)
    with suppress(RecipeError):  # the stage that trains it says what is wrong
        return _Shape(*design(**model.settings()))
    return None


def _shape_in(folder: Path) -> _Shape:
    """Raises FolderError if the folder is no model, or a quantized one."""
    network, description = read_outline(folder)
    if reason := why_not_fp32(network, known_facts(folder)):
        raise FolderError(f"{folder} cannot be used. {reason}")
    return _Shape(description.family, network.architecture)


def _check_distil(recipe: Recipe, base: Path, folder: Path, trained: _Shape | None) -> _Shape | None:
    """Returns the student's shape, if it is known."""
    own = stage_recipe(recipe, "distil", None)
    section = own.distil
    assert section is not None
    if section.teacher is not None:
        is_first = recipe.pretrain is None and recipe.finetune is None
        _, teacher = check_distil(own, base, folder if is_first else folder / "distil")
        trained = _Shape(teacher.description.family, teacher.network.architecture)
    else:
        check_without_teacher(section, base)
        if section.augment and recipe.finetune is not None:  # which makes the teacher
            check_augment_settings(section.augment, recipe.finetune.task, base)
    if trained is not None and trained.family is not None:
        head = trained.family.default_head.split("+")[0]
        check_teacher_shape(section, trained.architecture, head, "The teacher")
    if isinstance(section.student, str):
        return _shape_in(base / section.student)
    if trained is None or trained.family is None:
        return None
    shape = student_shape(section.student, trained.family, trained.architecture, None)
    return _Shape(shape.family, student_architecture(shape))


def _check_prune(section: PruneSection, base: Path, before: _Shape | None) -> None:
    try:
        bounds = read_bounds(section.bounds())
    except InputError as error:
        raise RecipeError(f"prune: {error}") from None
    if section.model is not None:
        before = _shape_in(base / section.model)
    if before is None:
        return
    architecture = before.architecture
    stacks = [stack for stack in (architecture.encoder, architecture.decoder) if stack is not None]
    if architecture.recurrent is not None or not stacks:
        if bounds.needs_data:
            raise RecipeError("prune: the cells of an LSTM cannot be pruned. Only vocabulary works with it.")
        return
    blocks = [block for stack in stacks for block in stack.blocks]
    most = {
        "layers": (min(stack.layers for stack in stacks), "the model has"),
        "inner": (min(block.feedforward.inner for block in blocks), "a layer has"),
        "heads": (min(block.attention.key_value_heads for block in blocks), "a layer has"),
    }
    for key, (count, whose) in most.items():
        wanted = getattr(bounds, key)
        if isinstance(wanted, int) and wanted > count:
            raise RecipeError(f"prune.{key} is {wanted:,}, more than there are: {whose} {count:,}.")
