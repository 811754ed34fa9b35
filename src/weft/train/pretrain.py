"""`weft pretrain`: a recipe in, a run folder out.

recipe.yml     the recipe with everything chosen that was left open; what resuming goes by
tokenizer/     trained here, unless one was given
tokens/        the corpus as token shards, by split and source
checkpoints/   what a killed run goes on from
metrics.jsonl, train.log, tensorboard/
model/         the best model, in Hugging Face's format
report.html    curves, samples and figures
weft.json      what was asked for, and what came out
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.interchange.folder import read_outline, write_model
from weft.model.families import design, find_family
from weft.model.network import count_parameters
from weft.objectives.catalog import DEFAULT_OBJECTIVE, OBJECTIVES, ObjectiveKind, find_objective_kind
from weft.progress import say
from weft.recipe.model import ModelSection, TokenizerSection
from weft.recipe.pretrain import PretrainPlan, PretrainSection
from weft.recipe.recipe import Recipe
from weft.threads import thread_count_restored, use_threads
from weft.tokenizer.read import load_tokenizer
from weft.tokens.order import Order
from weft.train.budget import Budget, read_budget
from weft.train.build import Built
from weft.train.checkpoints import CHECKPOINTS, restore_weights
from weft.train.data import (
    TrainingSource,
    corpus_folder_sources,
    find_training_sources,
    prepare_tokens,
    pretraining_tokenizer,
)
from weft.train.loop import Hooks, Retime, TrainSpec, train, validate
from weft.train.ngram_baseline import ngram_baseline
from weft.train.plan.machine import matmul_peak
from weft.train.plan.memory import keep_freed_memory
from weft.train.plan.run_plan import RunPlan, fewest_steps, make_run_plan
from weft.train.plan.trial import compile_stacks, expected_seconds
from weft.train.pretrain_inputs import PretrainInputs, device
from weft.train.report import write_run_report
from weft.train.run_folder import CORPUS, MODEL, claim, finish, load_run_plan, save_run_plan
from weft.train.samples import show_sample
from weft.train.validation import all_batches, figures_of, some_batches

MODERN = {"causal": "qwen3", "masked": "modernbert", "seq2seq": "t5"}  # the family when none is named


@dataclass(frozen=True)
class Goal:
    """What a recipe wants, checked before any work."""

    model: ModelSection
    family: str
    kind: ObjectiveKind
    settings: PretrainSection
    budget: Budget


@dataclass(frozen=True)
class Prepared:
    """A run before its first step: tokenizer and tokens are in its folder, and so is the plan."""

    inputs: PretrainInputs
    planned: RunPlan


@thread_count_restored()
def pretrain(recipe: Recipe, base: Path, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """`base` is what the recipe's paths are relative to. Returns what came out, as the run's weft.json has it."""
    keep_freed_memory()
    goal, sources = check_pretrain(recipe, base)
    with claim(folder, recipe, base, resume=resume):
        prepared = _prepare(recipe, base, folder, goal, sources, resume)
        return _carry_out(recipe, base, folder, prepared, resume)


@thread_count_restored()
def prepare(recipe: Recipe, base: Path, folder: Path) -> float:
    """Everything before the first step; `pretrain` with `resume` goes on from there. Returns the seconds that it will
    take at the speed of some steps here and now. For a budget in steps, tokens or epochs: one in time has begun.
    """
    keep_freed_memory()
    goal, sources = check_pretrain(recipe, base)
    with claim(folder, recipe, base, resume=False):
        prepared = _prepare(recipe, base, folder, goal, sources, resume=False)
        return expected_seconds(prepared.planned.model, prepared.planned.settings, prepared.inputs)


def _carry_out(recipe: Recipe, base: Path, folder: Path, prepared: Prepared, resume: bool) -> dict[str, Any]:
    inputs, tokenizer = prepared.inputs, prepared.inputs.tokenizer
    model, plan, ends = prepared.planned.model, prepared.planned.settings, prepared.planned.ends
    built = inputs.build(model, plan)
    _say_plan(built, plan)

    def retime(step: int, seconds: float) -> TrainSpec:
        """The machine was faster or slower than measured: the decay takes the time that is left."""
        assert ends is not None
        steps = _steps_until(ends - time.monotonic(), step, seconds, plan)
        if steps < (fewest := min(int(read_budget(plan.budget).amount), fewest_steps(plan, model))):
            say(
                f"This machine has become slower: there is time for {steps:,} steps, too few for a masked model. It "
                f"does {fewest:,}, which takes {(fewest - step) * seconds / 60:.1f} minutes more."
            )
            steps = fewest
        changed = plan.model_copy(update={"budget": f"{steps} steps", "decay": 1 - step / steps})
        save_run_plan(folder, recipe, base, model, changed)
        return inputs.spec(changed)

    can_retime = ends is not None and plan.schedule == "wsd"
    results = _learn(built, plan, inputs, folder, resume, retime if can_retime else None)
    facts = {"recipe": recipe.given_settings(), "results": results}
    files = tokenizer.saved_files()
    saved_as = write_model(built.to_save(), built.description, folder / MODEL, files=files, facts=facts)
    results |= {"model": str(folder / MODEL), "format": saved_as}
    finish(folder, results)
    write_run_report(folder)
    return results


def _prepare(
    recipe: Recipe, base: Path, folder: Path, goal: Goal, sources: list[TrainingSource], resume: bool
) -> Prepared:
    use_threads(goal.settings.threads)
    if recipe.corpus is not None and recipe.corpus.build is not None:
        from weft.corpus.build import build_corpus

        build_corpus(recipe.corpus, base, folder / CORPUS, name=recipe.name)
        sources = corpus_folder_sources(folder / CORPUS, "file")
    began = time.monotonic()  # a corpus is built once, whatever is then made of it: not on this budget
    known = TokenizerSection(path=goal.model.path) if goal.model.path is not None else None
    specials = "t5" if goal.kind.language_head == "seq2seq" else goal.family  # the sentinels that spans are cut with
    tokenizer = pretraining_tokenizer(recipe.tokenizer or known, sources, base, folder / "tokenizer", specials)
    data = prepare_tokens(sources, tokenizer, goal.kind, folder / "tokens")
    inputs = PretrainInputs(base, tokenizer, data, goal.kind)
    deadline = began + goal.budget.amount if goal.budget.kind == "seconds" else None
    planned = load_run_plan(folder, goal.model) if resume else None
    if planned is None:
        planned = make_run_plan(goal.model, goal.settings, inputs, goal.budget, deadline)
        save_run_plan(folder, recipe, base, planned.model, planned.settings)
    use_threads(planned.settings.threads)  # as the run began: the last bits of a product depend on their number
    return Prepared(inputs, planned)


def check_pretrain(recipe: Recipe, base: Path) -> tuple[Goal, list[TrainingSource]]:
    """All that can be known to be wrong before anything is read or written."""
    goal = _goal(recipe, base)
    if recipe.corpus is None:
        raise RecipeError("corpus is missing: say what to learn from, such as corpus: {sources: [{path: my.txt}]}.")
    if recipe.tokenizer is not None and recipe.tokenizer.path is not None:
        load_tokenizer(base / recipe.tokenizer.path)
    if recipe.corpus.build is not None:
        from weft.corpus.build import check_corpus

        check_corpus(recipe.corpus, base)
        return goal, []
    unit = recipe.corpus.documents or ("block" if goal.kind.pairs else "file")
    return goal, find_training_sources(recipe.corpus, base, unit)


def _goal(recipe: Recipe, base: Path) -> Goal:
    settings = recipe.pretrain or PretrainSection()
    budget = read_budget(settings.budget)
    model = recipe.model
    if model is None:
        wanted = OBJECTIVES[settings.objective or "causal"]
        model = ModelSection(family="bert" if wanted.pairs else MODERN[wanted.language_head])
    if model.path is not None:
        network, description = read_outline(base / model.path)
        family = network.architecture.family
        head = description.family.default_head if description.family is not None else description.head
    else:
        family = model.family or ""
        head = find_family(family).default_head
    head = head.split("+")[0]
    if head not in DEFAULT_OBJECTIVE:
        raise RecipeError(f"{model.path} has a {head} head and cannot be pre-trained.")
    objective = settings.objective or DEFAULT_OBJECTIVE[head]
    kind = find_objective_kind(objective, head)
    if model.path is None:  # a wrong knob, or a head that the family does not have
        design(**{**model.settings(), "head": kind.head})
    settings = settings.model_copy(update={"objective": objective})
    _check_nothing_is_ignored(settings)
    return Goal(model, family, kind, settings, budget)


def _check_nothing_is_ignored(settings: PretrainSection) -> None:
    """A setting that would do nothing is a mistake. By its value: the run folder's recipe.yml has all of them."""
    usual = PretrainSection()
    useless = {
        "matrix_rate": settings.optimizer != "muon" and "is Muon's; the optimizer is adamw",
        "decay": settings.schedule != "wsd" and f"goes with schedule wsd, not {settings.schedule}",
        "mask_share": settings.objective == "causal" and "does not go with objective causal: nothing is masked",
        "mask_unit": settings.objective in ("causal", "span") and f"does not go with objective {settings.objective}",
    }
    for name, reason in useless.items():
        if reason and getattr(settings, name) != getattr(usual, name):
            raise RecipeError(f"pretrain.{name} {reason}.")


def _learn(
    built: Built, plan: PretrainPlan, inputs: PretrainInputs, folder: Path, resume: bool, retime: Retime | None
) -> dict[str, Any]:
    """Train, go back to the best weights, and measure them."""
    network, spec = built.network, inputs.spec(plan)
    objectives = inputs.objectives("train", plan)
    order = Order(tuple(map(len, objectives)), inputs.data.weights, plan.seed)
    held_out = inputs.objectives("validation", plan)
    validation = some_batches(held_out, plan.validation_tokens, plan.sequence_length)
    head = inputs.kind.language_head
    hooks = Hooks(
        sample=(lambda: show_sample(network, inputs.tokenizer, validation[0], plan.seed)) if validation else None,
        retime=retime,
        figures=figures_of(inputs.data.splits["validation"], head),
        peak=matmul_peak(device(), spec.precision),
    )
    if plan.compile:
        compile_stacks(network)
    state = train(network, objectives, order, spec, folder, validation=validation, resume=resume, hooks=hooks)
    if state["best"] is not None and state["best"] != state["step"]:
        restore_weights(folder / CHECKPOINTS / f"step-{state['best']:06}", network)
    results = {
        "steps": state["step"],
        "best_step": state["best"],
        "tokens": state["tokens"],
        "parameters": count_parameters(network),
    }
    if validation:
        facts = validate(network, validation, spec.precision)
        results["validation"] = {**facts, **hooks.figures(facts)} if hooks.figures else facts
        splits = inputs.data.splits
        special = inputs.tokenizer.special_ids
        if counted := ngram_baseline(splits["train"], splits["validation"], head, special, state["tokens"]):
            results["by_counting"] = counted
    if inputs.data.splits["test"]:
        say("Measuring on the test part ...")
        test = inputs.objectives("test", plan)
        facts = validate(network, all_batches(test, plan.sequence_length), spec.precision)
        facts |= figures_of(inputs.data.splits["test"], head)(facts)
        results["test"] = {key.replace("validation_", ""): value for key, value in facts.items()}
    return results


def _steps_until(left: float, step: int, seconds: float, plan: PretrainPlan) -> int:
    """How many steps in all, with `seconds` a step; within reason, should the clock have gone mad."""
    planned = int(read_budget(plan.budget).amount)
    return step + min(max(int(left / seconds), planned // 10, 1), 2 * planned)


def _say_plan(built: Built, plan: PretrainPlan) -> None:
    architecture = built.saved
    rates = f"{plan.optimizer} at {plan.learning_rate:g}"
    rates += f" and {plan.matrix_rate:g} for matrices" if plan.optimizer == "muon" else ""
    size = f"{architecture.layers} layers, {architecture.width} wide, {count_parameters(built.network):,} parameters"
    say(
        f"Plan: {architecture.family}, {size}; {plan.objective}; {plan.budget} of {plan.batch_tokens:,} tokens in "
        f"sequences of {plan.sequence_length}; {rates}; {plan.precision}{', compiled' if plan.compile else ''}."
    )
