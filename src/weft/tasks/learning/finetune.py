"""`weft finetune`: a recipe in, a run folder out.

recipe.yml     the recipe with everything chosen that was left open
checkpoints/   what a killed run goes on from (with several seeds, in a folder for each)
metrics.jsonl, train.log, tensorboard/
model/         the best model, in Hugging Face's format
report.html, report.json    how good it is, beside a classical method
weft.json      what was asked for, and what came out

The loop, the checkpoints, the budget and the batches are those of pre-training.
"""

import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from weft.errors import InputError, RecipeError
from weft.interchange.folder import read_model_config
from weft.model.network import Architecture, count_parameters
from weft.model.positions import longest
from weft.objectives.objective import Batch
from weft.progress import say
from weft.recipe.file import check_section, read_recipe
from weft.recipe.finetune import FinetunePlan, FinetuneSection
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.answer import Answer
from weft.tasks.input_spec import input_spec_for
from weft.tasks.judging.evaluation import Evaluation, Subject, evaluate_on, say_cut, score_on, training_facts
from weft.tasks.judging.report import write_task_report
from weft.tasks.judging.untuned import ask_untuned
from weft.tasks.labelled.data import LabelledSplit, some_of
from weft.tasks.learning.build import from_family, from_folder
from weft.tasks.learning.check import check
from weft.tasks.learning.lora import Adapted, adapt, freeze_backbone
from weft.tasks.learning.plan import choose, spec_of
from weft.tasks.learning.saving import copy_model, write_task_model
from weft.tasks.learning.splits import Splits, count_classes, read_data
from weft.tasks.learning.vocabulary import prepare_tokenizer
from weft.tasks.rewrite import Rewrite
from weft.tasks.task import (
    LOSS,
    Example,
    Input,
    InputSpec,
    ScoredTask,
    Task,
    TaskObjective,
    batch_of,
    count_cut,
    groups,
    read_off,
)
from weft.threads import thread_count_restored, use_threads
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokens.order import Order
from weft.train.budget import read_budget
from weft.train.build import Built
from weft.train.checkpoints import CHECKPOINTS, restore_weights
from weft.train.loop import Hooks, train, validate
from weft.train.plan.machine import matmul_peak
from weft.train.plan.memory import keep_freed_memory
from weft.train.pretrain_inputs import device
from weft.train.run_folder import MODEL, RESOLVED_RECIPE, claim, finish, finished, seed_folder, write_resolved_recipe
from weft.train.training_log import read_metrics

FRESH_LENGTH = 256


@dataclass(frozen=True)
class Materials:
    """Everything but the weights."""

    section: FinetuneSection
    base: Path
    task: Task
    splits: Splits
    tokenizer: Tokenizer

    def build(self, seed: int) -> tuple[Built, InputSpec]:
        section = self.section
        if isinstance(section.model, ModelSection):
            length = section.sequence_length or FRESH_LENGTH
            built = from_family(section.model, self.task, self.tokenizer, length, section.dropout, seed)
        else:
            assert section.model is not None
            built = from_folder(self.base / section.model, self.task, section.dropout, seed)
        reader = input_spec_for(built.saved, built.description, self.tokenizer, section.sequence_length)
        if isinstance(self.task, Answer) and self.task.with_none and not reader.looks_ahead:
            raise InputError(
                "Some questions have no answer. Only an encoder (bert, roberta, modernbert …) can learn that: the "
                "first token says it, and a decoder's has not read the question."
            )
        self.task.prepare(built.network, self.splits.train.examples)
        if section.tune == "lora":
            adapt(built.network, section.lora_rank, seed)
            if not any(isinstance(module, Adapted) for module in built.network.modules()):
                raise RecipeError(f"finetune.tune: a {built.saved.family} has no matrices that take adapters.")
        elif section.tune == "head":
            freeze_backbone(built.network)
        if not any(parameter.requires_grad for parameter in built.network.parameters()):
            raise RecipeError("finetune.tune: this head is the embeddings again, so that nothing is left to learn.")
        built.network.to(device())
        return built, reader


@thread_count_restored()
def finetune(recipe: Recipe, base: Path, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """`base` is what the recipe's paths are relative to. Returns what came out, as the run's weft.json has it."""
    keep_freed_memory()
    section = check(recipe, base)
    use_threads(section.threads)
    if isinstance(section.model, str):
        read_model_config(base / section.model)  # an error if it is none, before anything else is read
    task, splits = read_data(section, base)
    with claim(folder, recipe, base, resume=resume):
        return _carry_out(recipe, base, folder, section, task, splits, resume=resume)


def _carry_out(
    recipe: Recipe,
    base: Path,
    folder: Path,
    section: FinetuneSection,
    task: Task,
    splits: Splits,
    *,
    resume: bool,
) -> dict[str, Any]:
    if resume and (results := finished(folder)):
        say(f"{folder} is finished already.")
        return results
    tokenizer = prepare_tokenizer(recipe, section, splits, base, folder)
    materials = Materials(section, base, task, splits, tokenizer)
    built, reader = materials.build(section.seed)
    if isinstance(task, Rewrite):
        task = replace(task, head=built.description.head)
        most = section.max_new_tokens
        task = replace(task, most_new=most) if most else task.measured(splits.train.examples, reader)
        materials = replace(materials, task=task)
    inputs = task.inputs(splits.train.examples, reader)
    _check_room(task, built.saved, reader, splits.train.examples[0], inputs)
    say_cut(count_cut(inputs), len(splits.train.examples), reader)
    plan = _planned(folder) if resume else None
    if plan is None:
        held_out = task.inputs(splits.validation.examples, reader)
        plan = choose(section, base, task, built.network, inputs, reader.most_tokens, held_out)
        _save_plan(folder, recipe, base, plan)
    use_threads(plan.threads)  # as the run began: the last bits of a product depend on their number
    _say_plan(built, plan, splits)
    judged_on, untuned = splits.test or splits.validation, None
    if section.baseline and isinstance(section.model, str):
        before, steps = base / section.model, read_budget(plan.budget, "finetune.budget").amount
        reads = steps * plan.batch * sum(len(one.ids) for one in inputs) / len(inputs)
        known, asked = splits.train.examples, judged_on.judged
        untuned = ask_untuned(task, built.network, reader, before, known, asked, reads)
    runs = []
    for seed in range(plan.seed, plan.seed + plan.seeds):
        place = folder if plan.seeds == 1 else seed_folder(folder, seed)
        if seed > plan.seed:
            built, _ = materials.build(seed)
        results = _learn(materials, built, reader, inputs, plan, seed, place, resume)
        write_task_model(task, built, reader, place / MODEL, recipe, results)
        runs.append((results, place))
    best, place = max(runs, key=lambda run: run[0]["score"])
    best = {**best, "classes": dict(count_classes(task, splits.train.examples).most_common())}
    if place != folder:
        copy_model(place / MODEL, folder / MODEL)
    subject = Subject.load(folder / MODEL)
    evaluation = evaluate_on(
        subject,
        judged_on,
        splits.train.examples if section.baseline else None,
        training=training_facts(best, len(splits.train.examples)),
        notes=_notes(splits, judged_on),
        untuned=untuned,
    )
    for verdict in evaluation.verdicts():
        say(verdict)
    if plan.seeds > 1:
        best["seeds"] = _over_seeds(runs, place, evaluation, splits.test)
    results = {**best, "judged_on": judged_on.where, **evaluation.summary(), "model": str(folder / MODEL)}
    write_task_report(folder, recipe.name, evaluation, splits.by_use(), best)
    finish(folder, results)
    return results


def _notes(splits: Splits, judged_on: LabelledSplit) -> list[str]:
    if splits.test is not None:
        return list(splits.notes)
    note = (
        f"There is no test data: these figures are of {judged_on.where}, the validation data that chose the best step. "
        "On new data they are a little lower."
    )
    say(note)
    return [note, *splits.notes]


def after_pretraining(recipe: Recipe, model: Path) -> Recipe:
    """The second half of a recipe that pre-trains first: it begins with what came out, if it names no other model."""
    assert recipe.finetune is not None
    update: dict[str, Any] = {"corpus": None, "pretrain": None, "model": None}
    if recipe.finetune.model is None:
        update["finetune"] = recipe.finetune.model_copy(update={"model": str(model.resolve())})
    if not isinstance(recipe.finetune.model, ModelSection):
        update["tokenizer"] = None
    return recipe.model_copy(update=update)


def _check_room(task: Task, saved: Architecture, reader: InputSpec, example: Example, inputs: list[Input]) -> None:
    """What is read, and written behind it, must fit into the model's positions."""
    limit = longest(saved.embedding.positions)
    if limit is None:
        return
    if (most := max(len(one.ids) for one in inputs)) > limit:
        raise RecipeError(
            f"An input has {most:,} tokens even when it is cut, and the model reads {limit:,}: finetune.data.separator "
            "is too long, or finetune.sequence_length too short."
        )
    if not isinstance(task, Rewrite):
        return
    # If one does not fit, none does: a source is cut to what is left, to a single token in the end.
    prompt = 1 if reader.has_source else len(task.inputs([replace(example, gold=None)], reader)[0].ids)
    if prompt + task.most_new - 1 > limit:  # the last token is written without being read
        raise RecipeError(
            f"An answer of up to {task.most_new:,} tokens (finetune.max_new_tokens) does not fit behind its prompt: "
            f"the model reads {limit:,} tokens in all (finetune.sequence_length)."
        )


def _learn(
    materials: Materials,
    built: Built,
    reader: InputSpec,
    inputs: list[Input],
    plan: FinetunePlan,
    seed: int,
    folder: Path,
    resume: bool,
) -> dict[str, Any]:
    """Train, go back to the best weights, and say how good they are on validation."""
    network, task = built.network, materials.task
    held_out = some_of(materials.splits.validation.examples, plan.validation_examples, plan.seed)
    questions = task.inputs(held_out, reader)

    def measure() -> dict[str, float]:
        if not isinstance(task, ScoredTask):
            batches = (batch_of(task, [questions[i] for i in part]) for part in groups(questions))
            return {"validation_loss": validate(network, batches)["validation_loss"]}
        network.eval()
        sums, counts = Counter[str](), Counter[str]()

        def add_losses(batch: Batch, hidden: Tensor) -> None:
            counts.update(batch.counts)
            for kind, answers in batch.answers.items():
                sums[kind] += float(answers.loss(network, hidden, batch.packed, 0.0))  # type: ignore[assignment]

        found = read_off(task, network, held_out, questions, on_batch=add_losses)
        network.train()
        loss = sum(sums[kind] / max(counts[kind], 1) for kind in counts)
        figures = {f"validation_{name}": value for name, value in task.figures(held_out, found).items()}
        return {"validation_loss": loss, **figures}

    spec = spec_of(plan, seed)
    best_by = f"validation_{task.deciding}" if isinstance(task, ScoredTask) and task.metric != LOSS else None
    hooks = Hooks(measure=measure, best_by=best_by, peak=matmul_peak(device(), spec.precision))
    order = Order((len(inputs),), (1.0,), seed)
    state = train(network, [TaskObjective(task, inputs)], order, spec, folder, resume=resume, hooks=hooks)
    if state["best"] is not None and state["best"] != state["step"]:
        restore_weights(folder / CHECKPOINTS / f"step-{state['best']:06}", network)
    validation = _measured(folder, state["best"]) or measure()
    network.eval()
    learning = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    return {
        "task": task.name,
        "seed": seed,
        "steps": state["step"],
        "best_step": state["best"],
        "tokens": state["tokens"],
        "parameters": count_parameters(network),
        "parameters_tuned": learning,
        "training_seconds": round(read_metrics(folder)[-1]["seconds"], 1),  # of all that went into it, with breaks
        "score": validation[best_by] if best_by else -validation["validation_loss"],
        "validation": validation,
    }


def _measured(folder: Path, step: int | None) -> dict[str, float]:
    """What was measured on validation after a step."""
    lines = [line for line in read_metrics(folder) if line["step"] == step and "validation_loss" in line]
    return {name: value for name, value in lines[-1].items() if name.startswith("validation_")} if lines else {}


def _over_seeds(
    runs: list[tuple[dict[str, Any], Path]], kept: Path, evaluation: Evaluation, test: LabelledSplit | None
) -> dict[str, Any]:
    """How much is luck: the score on validation over the seeds, and on the test set, if there is one."""
    scores = [run["score"] for run, _ in runs]
    by_figure = isinstance(evaluation.task, ScoredTask) and evaluation.task.metric != LOSS
    found = _spread(evaluation.score, scores) if by_figure else _spread("loss", [-score for score in scores])
    found["training_seconds"] = round(sum(run["training_seconds"] for run, _ in runs), 1)
    if test is not None:
        known = {kept: evaluation.figures[evaluation.score]}
        scores = [known[at] if at in known else score_on(Subject.load(at / MODEL), test) for _, at in runs]
        found["test"] = _spread(evaluation.score, scores)
    return found


def _spread(figure: str, scores: list[float]) -> dict[str, Any]:
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    return {"figure": figure, "scores": scores, "mean": mean, "deviation": deviation}


def _save_plan(folder: Path, recipe: Recipe, base: Path, plan: FinetunePlan) -> None:
    tree = recipe.model_copy(update={"finetune": plan}).asked()
    if isinstance(plan.model, ModelSection):
        tree["finetune"]["model"] = plan.model.settings()
    write_resolved_recipe(folder, tree, base)


def _planned(folder: Path) -> FinetunePlan | None:
    if not (folder / RESOLVED_RECIPE).is_file():
        return None
    section = read_recipe(folder / RESOLVED_RECIPE).finetune
    values = {} if section is None else {name: getattr(section, name) for name in type(section).model_fields}
    return check_section(FinetunePlan, values, str(folder / RESOLVED_RECIPE))


def _say_plan(built: Built, plan: FinetunePlan, splits: Splits) -> None:
    architecture = built.saved
    learning = sum(parameter.numel() for parameter in built.network.parameters() if parameter.requires_grad)
    rates = f"{plan.optimizer} at {plan.learning_rate:g}"
    say(
        f"Plan: {plan.task} with a {architecture.family} of {count_parameters(built.network):,} parameters, "
        f"{learning:,} of them learning; {plan.budget} of {plan.batch} examples ({len(splits.train.examples):,} there "
        f"are), at most {plan.sequence_length} tokens each; {rates}; {plan.precision}."
    )
