"""What a pre-training recipe asks for, checked before any work begins."""

from dataclasses import dataclass
from pathlib import Path

from weft.errors import RecipeError
from weft.interchange.folder import read_outline
from weft.model.families import design, find_family
from weft.objectives.catalog import DEFAULT_OBJECTIVE, OBJECTIVES, ObjectiveKind, find_objective_kind
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainSection
from weft.recipe.recipe import Recipe
from weft.tokenizer.read import load_tokenizer
from weft.train.budget import Budget, read_budget
from weft.train.data import TrainingSource, find_training_sources

_DEFAULT_FAMILY = {"causal": "qwen3", "masked": "modernbert", "seq2seq": "t5"}  # by language head


@dataclass(frozen=True)
class PretrainGoal:
    model: ModelSection
    family: str
    kind: ObjectiveKind
    settings: PretrainSection
    budget: Budget


def check_pretrain(recipe: Recipe, base: Path) -> tuple[PretrainGoal, list[TrainingSource]]:
    """Raises an error for everything that can be wrong before a text is read or a file written."""
    goal = _goal(recipe, base)
    if recipe.corpus is None:
        raise RecipeError("corpus is missing: name the text to learn, such as corpus: {sources: [{path: my.txt}]}.")
    if recipe.tokenizer is not None and recipe.tokenizer.path is not None:
        load_tokenizer(base / recipe.tokenizer.path)
    if recipe.corpus.build is not None:
        from weft.corpus.build import check_corpus

        check_corpus(recipe.corpus, base)
        return goal, []
    unit = recipe.corpus.documents or ("block" if goal.kind.pairs else "file")
    return goal, find_training_sources(recipe.corpus, base, unit)


def _goal(recipe: Recipe, base: Path) -> PretrainGoal:
    settings = recipe.pretrain or PretrainSection()
    budget = read_budget(settings.budget)
    model = recipe.model
    if model is None:
        wanted = OBJECTIVES[settings.objective or "causal"]
        model = ModelSection(family="bert" if wanted.pairs else _DEFAULT_FAMILY[wanted.language_head])
    family, head = _family_and_head(model, base)
    if head not in DEFAULT_OBJECTIVE:
        raise RecipeError(f"{model.path} has a {head} head and cannot be pre-trained.")
    objective = settings.objective or DEFAULT_OBJECTIVE[head]
    kind = find_objective_kind(objective, head)
    if model.path is None:  # raises for a wrong setting, or a head that the family lacks
        design(**{**model.settings(), "head": kind.head})
    settings = settings.model_copy(update={"objective": objective})
    _check_nothing_is_ignored(settings, kind)
    if recipe.processes is not None:
        recipe.processes.check_optimizer(settings.optimizer, "pretrain.optimizer")
    return PretrainGoal(model, family, kind, settings, budget)


def _family_and_head(model: ModelSection, base: Path) -> tuple[str, str]:
    """The family's name and its language head."""
    if model.path is not None:
        network, description = read_outline(base / model.path)
        head = description.family.default_head if description.family is not None else description.head
        return network.architecture.family, head.split("+")[0]
    family = model.family or ""
    return family, find_family(family).default_head.split("+")[0]


def _check_nothing_is_ignored(settings: PretrainSection, kind: ObjectiveKind) -> None:
    """Raises RecipeError for a setting without effect. Default values pass: a run's recipe.yml has all of them."""
    usual = PretrainSection()
    useless = {
        "matrix_rate": settings.optimizer != "muon" and "is Muon's; the optimizer is adamw",
        "decay": settings.schedule != "wsd" and f"goes with schedule wsd, not {settings.schedule}",
        "mask_share": settings.objective == "causal" and "does not go with objective causal: nothing is masked",
        "mask_unit": kind.head in ("causal", "seq2seq") and f"does not go with objective {settings.objective}",
    }
    for name, reason in useless.items():
        if reason and getattr(settings, name) != getattr(usual, name):
            raise RecipeError(f"pretrain.{name} {reason}.")
