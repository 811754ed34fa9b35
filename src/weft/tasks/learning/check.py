"""What is wrong with a fine-tuning recipe, as far as it can be known before anything is read or written."""

from pathlib import Path

from weft.errors import RecipeError
from weft.model.families import find_family
from weft.recipe.finetune import DataSection, FinetuneSection
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.catalog import TASKS
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.judging.evaluation import require_packages
from weft.tasks.learning.plan import chosen_optimizer
from weft.tasks.learning.splits import metric_error
from weft.tasks.rewrite import Rewrite
from weft.tasks.task import LOSS, ScoredTask
from weft.train.budget import read_budget


def check(recipe: Recipe, base: Path) -> FinetuneSection:
    """All that can be known to be wrong before anything is read or written."""
    section = recipe.finetune
    if section is None:
        raise RecipeError(
            "finetune is missing: say what to learn, such as finetune: {model: …, task: classify, data: …}."
        )
    if not section.data.train:
        raise RecipeError("finetune.data.train is missing: the file to learn from.")
    if not section.model:
        raise RecipeError(
            "finetune.model is missing: a model folder, or {family: …} to begin from nothing (with what the recipe "
            "pre-trains, weft run begins)."
        )
    if isinstance(section.model, ModelSection):
        _check_fresh(section.model)
    elif recipe.tokenizer is not None:
        raise RecipeError("tokenizer goes with a fresh model; a model folder has its own.")
    read_budget(section.budget, "finetune.budget")
    _check_useless(section, base)
    _check_metric(section)
    require_packages(TASKS[section.task], beside=section.baseline, without="finetune.baseline: false")
    return section


def _check_fresh(model: ModelSection) -> None:
    if model.path is not None:
        raise RecipeError("finetune.model: a folder is named as it is: model: runs/bert/model.")
    for name in ("head", "labels"):
        if name in model.model_fields_set:
            raise RecipeError(f"finetune.model.{name} cannot be set: it is as the task has it.")
    assert model.family is not None
    find_family(model.family)


def _check_useless(section: FinetuneSection, base: Path) -> None:
    """A setting that would do nothing is a misunderstanding."""
    task, data = section.task, section.data
    writes, is_class = issubclass(TASKS[task], Rewrite), task in ("classify", "pair", "tag")
    is_known = not isinstance(section.model, str) or (base / section.model).exists()  # or it is yet to be pre-trained
    by_adamw = is_known and chosen_optimizer(section, base) == "adamw"
    written = not writes and f"goes with tasks that write, not with {task}"
    useless = {
        "crf": task != "tag" and f"goes with task tag, not {task}",
        "balanced": (not is_class and f"goes with classes, not with {task}")
        or (section.crf and "does not go with a CRF, which weighs whole sentences"),
        "label_smoothing": (task in ("similarity", "answer") and f"goes with classes and texts, not with {task}")
        or (section.crf and "does not go with a CRF"),
        "prefix": written,
        "beams": written or (section.sample and "is of a search; with sample there is none"),
        "sample": written,
        "max_new_tokens": written,
        "lora_rank": section.tune != "lora" and f"goes with tune: lora, not {section.tune}",
        "matrix_rate": by_adamw and "is Muon's; the optimizer is adamw",
    }
    several = data.separator is not None or isinstance(data.label, list)
    useless_data = {
        "several": (task != "classify" and f"goes with task classify, not {task}")
        or (data.several is False and several and "is false, but several labels are described"),
        "separator": task != "classify" and not writes and f"goes with classify and tasks that write, not with {task}",
        "label": isinstance(data.label, list) and task != "classify" and f"is a single column in task {task}",
    }
    usual = FinetuneSection(task=task, data=DataSection())
    for name, reason in useless.items():
        if reason and getattr(section, name) != getattr(usual, name):
            raise RecipeError(f"finetune.{name} {reason}.")
    for name, reason in useless_data.items():
        if reason and getattr(data, name) is not None:
            raise RecipeError(f"finetune.data.{name} {reason}.")


def _check_metric(section: FinetuneSection) -> None:
    """As far as it can be known before the data is read."""
    kind = TASKS[section.task]
    known = (*kind.metrics, "f1_macro") if issubclass(kind, ScoredTask) else ()
    known = (*known, *MultiLabel.metrics) if kind is Classify else known
    if section.metric not in (None, LOSS, *known):
        raise metric_error(str(section.metric), section.task, kind.metrics if issubclass(kind, ScoredTask) else ())
