"""Errors in a fine-tuning recipe that can be found before any file is read or written."""

from collections.abc import Sequence
from pathlib import Path

from weft.errors import RecipeError
from weft.model.families import find_family
from weft.recipe.finetune import FinetuneSection
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.catalog import TASKS
from weft.tasks.judging.evaluation import require_packages
from weft.tasks.learning.plan import chosen_optimizer
from weft.tasks.scored_task import LOSS, metric_error
from weft.train.budget import read_budget


def check_finetune(recipe: Recipe, base: Path) -> FinetuneSection:
    """Raises RecipeError if the section is missing or cannot work."""
    section = recipe.finetune
    if section is None:
        raise RecipeError(
            "finetune is missing. Example: finetune: {model: bert/model, task: classify, data: {train: train.tsv}}."
        )
    if not section.data.train:
        raise RecipeError("finetune.data.train is missing: the training data.")
    if not section.model:
        raise RecipeError(
            "finetune.model is missing: give a model folder, or {family: …} for a fresh model. Only weft run takes the "
            "model that the recipe pre-trains."
        )
    if isinstance(section.model, ModelSection):
        _check_fresh(section.model)
    elif recipe.tokenizer is not None:
        raise RecipeError("tokenizer belongs to a fresh model; a model folder has its own.")
    read_budget(section.budget, "finetune.budget")
    _check_useless(section, base)
    if recipe.processes is not None and _is_known(section, base):
        recipe.processes.check_optimizer(chosen_optimizer(section, base), "finetune.optimizer")
    TASKS[section.task].check_section(section)
    _check_metric(section)
    require_packages(TASKS[section.task], baseline=section.baseline, without="finetune.baseline: false")
    return section


def _check_fresh(model: ModelSection) -> None:
    if model.path is not None:
        raise RecipeError("finetune.model: give a folder without path: model: runs/bert/model.")
    for name in ("head", "labels"):
        if name in model.model_fields_set:
            raise RecipeError(f"finetune.model.{name} cannot be set: the task determines it.")
    assert model.family is not None
    find_family(model.family)


def _check_useless(section: FinetuneSection, base: Path) -> None:
    """Raises RecipeError for a setting that is given but has no effect."""
    for name in sorted({name for task in TASKS.values() for name in task.recipe_settings}):
        if _is_given(section, name) and name not in TASKS[section.task].recipe_settings:
            users = [task.name for task in TASKS.values() if name in task.recipe_settings]
            raise RecipeError(f"finetune.{name} has no effect on task {section.task}; it belongs to {_listed(users)}.")
    for setting, others in TASKS[section.task].exclusive_settings.items():
        if useless := [name for name in others if _is_given(section, setting) and _is_given(section, name)]:
            raise RecipeError(f"finetune.{useless[0]} has no effect with finetune.{setting}.")
    for role, columns in section.data.named_columns().items():
        if isinstance(columns, list) and role not in TASKS[section.task].list_roles:
            raise RecipeError(f"finetune.data.{role} is a single column in task {section.task}, not a list.")
    if section.tune != "lora" and _is_given(section, "lora_rank"):
        raise RecipeError(f"finetune.lora_rank has no effect with finetune.tune: {section.tune}; it belongs to lora.")
    if _is_given(section, "matrix_rate") and _is_known(section, base) and chosen_optimizer(section, base) == "adamw":
        raise RecipeError("finetune.matrix_rate has no effect: it belongs to muon, and the optimizer is adamw.")


def _is_known(section: FinetuneSection, base: Path) -> bool:
    """Whether the model is there, or yet to be pre-trained."""
    return not isinstance(section.model, str) or (base / section.model).exists()


def _is_given(section: FinetuneSection, name: str) -> bool:
    """Whether a setting differs from its default. `name`: a key of finetune, or data.… for one of finetune.data."""
    parent, _, key = name.rpartition(".")
    part = section.data if parent else section
    return getattr(part, key) != type(part).model_fields[key].default


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _check_metric(section: FinetuneSection) -> None:
    """As far as it can be checked before the data is read."""
    task = TASKS[section.task]
    if section.metric not in (None, LOSS, *task.metrics_of_recipe()):
        raise metric_error(str(section.metric), section.task, task.metrics)
