"""`weft pretrain`: a recipe in, a run folder out.

recipe.yml     the recipe with every setting filled in; a resumed run follows it
tokenizer/     trained here, unless the recipe names one
tokens/        the corpus as token shards, by split and source
checkpoints/   what a stopped run resumes from
metrics.jsonl, train.log, tensorboard/
model/         the best model, in Hugging Face's format
report.html    curves, samples and figures
weft.json      the recipe as it was given, and the results
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.interchange.folder import write_model
from weft.model.network import count_parameters
from weft.objectives.objective import Batch
from weft.recipe.model import TokenizerSection
from weft.recipe.pretrain import PretrainPlan
from weft.recipe.recipe import Recipe
from weft.threads import thread_count_restored, use_threads
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokens.order import Order
from weft.train.budget import read_budget
from weft.train.build import Built
from weft.train.checkpoints import CHECKPOINTS, restore_weights
from weft.train.data import TrainingSource, corpus_folder_sources, prepare_tokens, pretraining_tokenizer
from weft.train.loop import Hooks, Retime, train
from weft.train.ngram_baseline import ngram_baseline
from weft.train.plan.machine import check_precision, matmul_peak
from weft.train.plan.memory import keep_freed_memory, return_freed_memory
from weft.train.plan.run_plan import RunPlan, check_can_be_shared, fewest_steps, make_run_plan
from weft.train.plan.trial import compile_stacks, expected_seconds
from weft.train.pretrain_goal import PretrainGoal, check_pretrain
from weft.train.pretrain_inputs import PretrainInputs
from weft.train.processes import Processes, alone
from weft.train.report import write_run_report
from weft.train.run_folder import CORPUS, MODEL, claim, finish, load_run_plan, save_run_plan
from weft.train.samples import show_sample
from weft.train.spec import TrainSpec
from weft.train.state import TrainState
from weft.train.validation import all_batches, figures_of, some_batches, validate


@dataclass(frozen=True)
class PreparedRun:
    """A run before its first step: tokenizer, tokens and plan are in its folder."""

    recipe: Recipe
    base: Path
    folder: Path
    inputs: PretrainInputs
    plan: RunPlan
    processes: Processes


@thread_count_restored()
def pretrain(
    recipe: Recipe, base: Path, folder: Path, *, resume: bool = False, processes: Processes | None = None
) -> dict[str, Any]:
    """Returns the results, as the run's weft.json has them. The recipe's paths are relative to `base`."""
    processes = processes or alone(recipe)
    if processes.is_sharded:
        return_freed_memory()
    else:
        keep_freed_memory()
    goal, sources = check_pretrain(recipe, base)
    check_precision("pretrain", goal.settings.precision, processes.device)
    check_can_be_shared(goal.model, base, processes.tensor.world)
    with claim(folder, recipe, base, resume=resume, processes=processes):
        run = prepared_run(recipe, base, folder, goal, sources, processes, resume=resume)
        return _train_and_save(run, resume=resume)


@thread_count_restored()
def prepare(recipe: Recipe, base: Path, folder: Path) -> float:
    """Do everything before the first step; `pretrain` with `resume` continues. Returns the expected seconds of
    training. Not for a budget in time, which has then begun.
    """
    keep_freed_memory()
    goal, sources = check_pretrain(recipe, base)
    with claim(folder, recipe, base, resume=False):
        run = prepared_run(recipe, base, folder, goal, sources, alone(recipe), resume=False)
        return expected_seconds(run.plan.model, run.plan.settings, run.inputs)


def prepared_run(
    recipe: Recipe,
    base: Path,
    folder: Path,
    goal: PretrainGoal,
    sources: list[TrainingSource],
    processes: Processes,
    *,
    resume: bool,
    adapt: Callable[[PretrainInputs], PretrainInputs] = lambda inputs: inputs,
) -> PreparedRun:
    """Corpus, tokenizer, tokens and plan. `adapt`: inputs that build another network or have another loss."""
    use_threads(goal.settings.threads)
    if recipe.corpus is not None and recipe.corpus.build is not None:
        from weft.corpus.build import build_corpus

        with processes.first_goes_ahead():
            build_corpus(recipe.corpus, base, folder / CORPUS, name=recipe.name)
        sources = corpus_folder_sources(folder / CORPUS, "file")
    began = time.monotonic()  # building the corpus is not part of the budget
    deadline = began + goal.budget.amount if goal.budget.kind == "seconds" else None
    with processes.first_goes_ahead():
        tokenizer = _tokenizer(recipe, base, folder, goal, sources)
        data = prepare_tokens(sources, tokenizer, goal.kind, folder / "tokens")
        inputs = adapt(
            PretrainInputs(
                base, tokenizer, data, goal.kind, processes.device, processes.data.world, processes.tensor.world
            )
        )
        plan = load_run_plan(folder, goal.model) if resume or not processes.is_first else None
        if plan is None:
            plan = make_run_plan(goal.model, goal.settings, inputs, goal.budget, deadline)
            save_run_plan(folder, recipe, base, plan.model, plan.settings)
    use_threads(plan.settings.threads)  # the number the run began with: the last bits of a product depend on it
    return PreparedRun(recipe, base, folder, inputs, plan, processes)


def _tokenizer(
    recipe: Recipe, base: Path, folder: Path, goal: PretrainGoal, sources: list[TrainingSource]
) -> Tokenizer:
    of_model = TokenizerSection(path=goal.model.path) if goal.model.path is not None else None
    family = "t5" if goal.kind.language_head == "seq2seq" else goal.family  # their objectives need T5's sentinels
    return pretraining_tokenizer(recipe.tokenizer or of_model, sources, base, folder / "tokenizer", family)


def _train_and_save(run: PreparedRun, *, resume: bool) -> dict[str, Any]:
    build = run.inputs.build if run.processes.has_whole_weights else run.inputs.outline
    built = build(run.plan.model, run.plan.settings).for_process(run.processes)
    run.processes.say(_plan_in_words(built, run.plan.settings))
    results = train_and_measure(run, built, resume=resume)
    whole = built.gathered(run.processes)
    if run.processes.is_first:
        facts, files = {"recipe": run.recipe.given_settings(), "results": results}, run.inputs.tokenizer.saved_files()
        saved_as = write_model(whole.to_save(), built.description, run.folder / MODEL, files=files, facts=facts)
        results = {**results, "model": str(run.folder / MODEL), "format": saved_as}
        finish(run.folder, results)
        write_run_report(run.folder)
    return run.processes.broadcast(results)


def train_and_measure(run: PreparedRun, built: Built, *, resume: bool) -> dict[str, Any]:
    """Train, restore the best weights, and measure them."""
    inputs, plan, network = run.inputs, run.plan.settings, built.network
    spec, head = inputs.spec(plan), inputs.kind.language_head
    objectives = inputs.objectives("train", plan)
    order = Order(tuple(map(len, objectives)), inputs.data.weights, plan.seed)
    validation = some_batches(inputs.objectives("validation", plan), plan.validation_tokens, plan.sequence_length)
    hooks = Hooks(
        sample=(lambda: _sample(run, built, validation[0])) if validation else None,
        retime=_retime_hook(run),
        figures=figures_of(inputs.data.splits["validation"], head),
        peak=matmul_peak(inputs.device, spec.precision),
    )
    if plan.compile and run.processes.has_whole_weights and run.processes.zero is None:
        compile_stacks(network)
    state = train(
        network,
        objectives,
        order,
        spec,
        run.folder,
        validation=validation,
        resume=resume,
        hooks=hooks,
        processes=run.processes,
    )
    if state.best is not None and state.best != state.step:
        restore_weights(run.folder / CHECKPOINTS / f"step-{state.best:06}", network)
    return _measured(run, built, state)


def _sample(run: PreparedRun, built: Built, batch: Batch) -> str:
    network = built.gathered(run.processes).network
    return show_sample(network, run.inputs.tokenizer, batch, run.plan.settings.seed) if run.processes.is_first else ""


def _measured(run: PreparedRun, built: Built, state: TrainState) -> dict[str, Any]:
    """The results of the run, with the losses of the weights that are kept."""
    inputs, plan, network, processes = run.inputs, run.plan.settings, built.network, run.processes
    precision, head, splits = inputs.spec(plan).precision, inputs.kind.language_head, inputs.data.splits
    results: dict[str, Any] = {
        "steps": state.step,
        "best_step": state.best,
        "objective": plan.objective,
        "tokens": state.tokens,
        "sequence_length": plan.sequence_length,
        "parameters": count_parameters(network),
    }
    held_out = inputs.objectives("validation", plan)
    if held_out:
        batches = some_batches(held_out, plan.validation_tokens, plan.sequence_length)
        facts = validate(network, batches, precision, scores=held_out[0].scores, processes=processes)
        results["validation"] = {**facts, **figures_of(splits["validation"], head)(facts)}
        special = inputs.tokenizer.special_ids
        if processes.is_first and (
            baseline := ngram_baseline(splits["train"], splits["validation"], head, special, state.tokens)
        ):
            results["by_counting"] = baseline
    if splits["test"]:
        processes.say("Measuring on the test part ...")
        test = inputs.objectives("test", plan)
        everything = all_batches(test, plan.sequence_length)
        facts = validate(network, everything, precision, scores=test[0].scores, processes=processes)
        facts |= figures_of(splits["test"], head)(facts)
        results["test"] = {key.replace("validation_", ""): value for key, value in facts.items()}
    return results


def _retime_hook(run: PreparedRun) -> Retime | None:
    """Corrects the number of steps before the decay begins, if the budget is in time: the machine may have become
    faster or slower than it was when measured. None if the number of steps is fixed.
    """
    plan, ends = run.plan.settings, run.processes.broadcast(run.plan.ends)
    if ends is None or plan.schedule != "wsd":
        return None

    def retime(step: int, seconds: float) -> TrainSpec:
        steps = run.processes.broadcast(_steps_until(ends - time.monotonic(), step, seconds, plan))
        if steps < (fewest := min(int(read_budget(plan.budget).amount), fewest_steps(plan, run.plan.model))):
            run.processes.say(
                f"This machine has become slower: there is time for {steps:,} steps, too few for a masked model. The "
                f"run takes {fewest:,}, {(fewest - step) * seconds / 60:.1f} minutes more."
            )
            steps = fewest
        changed = plan.model_copy(update={"budget": f"{steps} steps", "decay": 1 - step / steps})
        if run.processes.is_first:
            save_run_plan(run.folder, run.recipe, run.base, run.plan.model, changed)
        return run.inputs.spec(changed)

    return retime


def _steps_until(left: float, step: int, seconds: float, plan: PretrainPlan) -> int:
    """Steps in all, if `left` seconds remain after `step` and a step takes `seconds`. Limited to between a tenth more
    and twice the planned number, in case the clock is wrong.
    """
    planned = int(read_budget(plan.budget).amount)
    return step + min(max(int(left / seconds), planned // 10, 1), 2 * planned)


def _plan_in_words(built: Built, plan: PretrainPlan) -> str:
    architecture = built.saved
    rates = f"{plan.optimizer} at {plan.learning_rate:g}"
    rates += f" and {plan.matrix_rate:g} for matrices" if plan.optimizer == "muon" else ""
    size = f"{architecture.layers} layers, {architecture.width} wide, {count_parameters(built.network):,} parameters"
    return (
        f"Plan: {architecture.family}, {size}; {plan.objective}; {plan.budget} of {plan.batch_tokens:,} tokens in "
        f"sequences of {plan.sequence_length}; {rates}; {plan.precision}{', compiled' if plan.compile else ''}."
    )
