"""`weft finetune`: a recipe in, a run folder out.

recipe.yml     the recipe with every setting filled in
checkpoints/   what a stopped run resumes from (with several seeds, one folder per seed)
metrics.jsonl, train.log, tensorboard/
model/         the best model, in Hugging Face's format
report.html, report.json    how good it is, beside a baseline
weft.json      the recipe as it was given, and the results

The training loop, the checkpoints, the budget and the batches are those of pre-training.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.interchange.folder import read_model_config
from weft.model.network import count_parameters
from weft.progress import say
from weft.recipe.file import check_section, read_recipe
from weft.recipe.finetune import FinetunePlan
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.judging.evaluation import Evaluation, evaluate_on, score_on, training_facts
from weft.tasks.judging.report import write_task_report
from weft.tasks.judging.untuned import Untuned, ask_untuned
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.learning.check import check_finetune
from weft.tasks.learning.finetune_inputs import FinetuneInputs
from weft.tasks.learning.plan import make_finetune_plan
from weft.tasks.learning.saving import copy_model, write_task_model
from weft.tasks.learning.splits import Splits, count_classes, read_data
from weft.tasks.learning.train_once import count_trained, train_once
from weft.tasks.learning.vocabulary import prepare_tokenizer
from weft.tasks.loaded import LoadedModel
from weft.threads import thread_count_restored, use_threads
from weft.train.budget import read_budget
from weft.train.build import Built
from weft.train.plan.machine import check_precision
from weft.train.plan.memory import keep_freed_memory
from weft.train.processes import Processes, alone
from weft.train.run_folder import MODEL, RESOLVED_RECIPE, claim, finish, finished, seed_folder, write_resolved_recipe


@dataclass(frozen=True)
class SeedRun:
    """One of the runs that differ only in their seed."""

    results: dict[str, Any]
    folder: Path


@thread_count_restored()
def finetune(
    recipe: Recipe, base: Path, folder: Path, *, resume: bool = False, processes: Processes | None = None
) -> dict[str, Any]:
    """Returns the results, as the run's weft.json has them. The recipe's paths are relative to `base`."""
    keep_freed_memory()
    processes = processes or alone(recipe)
    section = check_finetune(recipe, base)
    check_precision("finetune", section.precision, processes.device)
    use_threads(section.threads)
    if isinstance(section.model, str):
        read_model_config(base / section.model)  # raises if it is no model, before the data is read
    task, splits = read_data(section, base)
    with claim(folder, recipe, base, resume=resume, processes=processes):
        if resume and (results := finished(folder)):
            processes.say(f"{folder} is finished already.")
            return results
        with processes.first_goes_ahead():
            tokenizer = prepare_tokenizer(recipe, section, splits, base, folder)
        given = FinetuneInputs(section, base, task, splits, tokenizer, processes)
        return _train_and_judge(recipe, given, folder, resume=resume)


def _train_and_judge(recipe: Recipe, given: FinetuneInputs, folder: Path, *, resume: bool) -> dict[str, Any]:
    built, input_spec = given.build(given.section.seed)
    given = given.fitted_to(built, input_spec)
    inputs = given.training_inputs(built.saved, input_spec)
    is_first = given.processes.is_first
    with given.processes.first_goes_ahead():
        plan = _plan(recipe, given, built, input_spec, inputs, folder, resume=resume or not is_first)
    use_threads(plan.threads)  # the number the run began with: the last bits of a product depend on it
    given.processes.say(_plan_in_words(built, plan, given.splits))
    with given.processes.first_goes_ahead():  # the others wait, however long it takes
        untuned = _untuned_answers(given, built, input_spec, inputs, plan) if is_first else None
    runs = []
    for seed in range(plan.seed, plan.seed + plan.seeds):
        place = folder if plan.seeds == 1 else seed_folder(folder, seed)
        if seed > plan.seed:
            built, _ = given.build(seed)
        task, results = train_once(given, built, input_spec, inputs, plan, seed, place, resume=resume)
        if is_first:
            write_task_model(task, built, input_spec, place / MODEL, recipe, results)
        runs.append(SeedRun(results, place))
    with given.processes.first_goes_ahead():
        judged = _judge(recipe, given, runs, untuned, folder) if is_first else {}
    return given.processes.broadcast(judged)


def _plan(
    recipe: Recipe,
    given: FinetuneInputs,
    built: Built,
    input_spec: InputSpec,
    inputs: list[Input],
    folder: Path,
    *,
    resume: bool,
) -> FinetunePlan:
    """The plan of the run that is resumed, or a new one, which is saved."""
    plan = _saved_plan(folder) if resume else None
    if plan is None:
        held_out = given.task.inputs(given.splits.validation.examples, input_spec)
        length = input_spec.most_tokens
        plan = make_finetune_plan(
            given.section,
            given.base,
            given.task,
            built.network,
            inputs,
            length,
            held_out,
            processes=given.processes,
        )
        _save_plan(folder, recipe, given.base, plan)
    return plan


def _untuned_answers(
    given: FinetuneInputs, built: Built, input_spec: InputSpec, inputs: list[Input], plan: FinetunePlan
) -> Untuned | None:
    """The answers of the model before tuning; None for a fresh model, or without a baseline."""
    section, splits = given.section, given.splits
    if not section.baseline or not isinstance(section.model, str):
        return None
    steps = read_budget(plan.budget, "finetune.budget").amount
    tokens = steps * plan.batch * sum(len(one.ids) for one in inputs) / len(inputs)
    folder, train = given.base / section.model, splits.train.examples
    return ask_untuned(given.task, built.network, input_spec, folder, train, splits.judged_on.judged, tokens)


def _judge(
    recipe: Recipe, given: FinetuneInputs, runs: list[SeedRun], untuned: Untuned | None, folder: Path
) -> dict[str, Any]:
    """Keep the best run's model, evaluate it, and write the report and the results."""
    splits = given.splits
    kept = max(runs, key=lambda run: run.results["score"])
    best = {**kept.results, "classes": dict(count_classes(given.task, splits.train.examples).most_common())}
    if kept.folder != folder:
        copy_model(kept.folder / MODEL, folder / MODEL)
    evaluation = evaluate_on(
        LoadedModel.load(folder / MODEL, given.processes.device),
        splits.judged_on,
        splits.train.examples if given.section.baseline else None,
        training=training_facts(best, len(splits.train.examples)),
        notes=_notes(splits),
        untuned=untuned,
    )
    if len(runs) > 1:
        best["seeds"] = _over_seeds(runs, kept, evaluation, splits.test, given.processes.device)
    report = write_task_report(folder, recipe.name, evaluation, splits.by_use(), best)
    results = {**best, "judged_on": splits.judged_on.where, **evaluation.summary()}
    results |= {"model": str(folder / MODEL), "report": str(report)}
    finish(folder, results)
    return results


def _notes(splits: Splits) -> list[str]:
    if splits.test is not None:
        return list(splits.notes)
    note = (
        f"There is no test data: these figures are of {splits.judged_on.where}, the validation data that chose the "
        "best step. Expect slightly lower ones on new data."
    )
    say(note)
    return [note, *splits.notes]


def after_pretraining(recipe: Recipe, model: Path) -> Recipe:
    """The fine-tuning half of a recipe that also pre-trains. It starts from `model` unless it names another."""
    assert recipe.finetune is not None
    update: dict[str, Any] = {"corpus": None, "pretrain": None, "model": None}
    if recipe.finetune.model is None:
        update["finetune"] = recipe.finetune.model_copy(update={"model": str(model.resolve())})
    if not isinstance(recipe.finetune.model, ModelSection):
        update["tokenizer"] = None
    return recipe.model_copy(update=update)


def _over_seeds(
    runs: list[SeedRun], kept: SeedRun, evaluation: Evaluation, test: LabelledSplit | None, device: str
) -> dict[str, Any]:
    """Mean and standard deviation of the score over the seeds: on validation, and on the test data if there is any."""
    scores = [run.results["score"] for run in runs]
    by_figure = evaluation.task.selection_metric is not None
    found = _spread(evaluation.score, scores) if by_figure else _spread("loss", [-score for score in scores])
    found["training_seconds"] = round(sum(run.results["training_seconds"] for run in runs), 1)
    if test is not None:
        score = {kept.folder: evaluation.figures[evaluation.score]}
        others = [run.folder for run in runs if run is not kept]
        score |= {place: score_on(LoadedModel.load(place / MODEL, device), test) for place in others}
        found["test"] = _spread(evaluation.score, [score[run.folder] for run in runs])
    return found


def _spread(figure: str, scores: list[float]) -> dict[str, Any]:
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    return {"figure": figure, "scores": scores, "mean": mean, "deviation": deviation}


def _save_plan(folder: Path, recipe: Recipe, base: Path, plan: FinetunePlan) -> None:
    tree = recipe.model_copy(update={"finetune": plan}).given_settings()
    if isinstance(plan.model, ModelSection):
        tree["finetune"]["model"] = plan.model.settings()
    write_resolved_recipe(folder, tree, base)


def _saved_plan(folder: Path) -> FinetunePlan | None:
    if not (folder / RESOLVED_RECIPE).is_file():
        return None
    section = read_recipe(folder / RESOLVED_RECIPE).finetune
    values = {} if section is None else {name: getattr(section, name) for name in type(section).model_fields}
    return check_section(FinetunePlan, values, str(folder / RESOLVED_RECIPE))


def _plan_in_words(built: Built, plan: FinetunePlan, splits: Splits) -> str:
    return (
        f"Plan: {plan.task} with a {built.saved.family} of {count_parameters(built.network):,} parameters "
        f"({count_trained(built.network):,} trainable); {plan.budget} of {plan.batch} examples, out of "
        f"{len(splits.train.examples):,}; at most {plan.sequence_length} tokens each; "
        f"{plan.optimizer} at {plan.learning_rate:g}; {plan.precision}."
    )
