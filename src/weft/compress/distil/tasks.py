"""Distillation of a tuned model: a small model learns its task.

intermediate/   checkpoints and metrics of the first stage
alone/          the same student, trained without the teacher
model/          the student
plan.json       the settings of each stage
The rest of the folder is as in fine-tuning.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from weft.compress.distil.augment import augment_examples, augmentation
from weft.compress.distil.cache import cached_teacher
from weft.compress.distil.importance import SAMPLES
from weft.compress.distil.stages import (
    INTERMEDIATE,
    PREDICTION,
    StagePlans,
    finetune_section,
    share_of_budget,
    with_steps_of_later_epochs,
)
from weft.compress.distil.student import Student, head_of_task, make_student, student_from_folder
from weft.compress.distil.writing import with_teacher_texts
from weft.compress.lineage import LINEAGE, with_step
from weft.inference.precision import teaching
from weft.model.network import Network, count_parameters
from weft.objectives.distil_memory import MemorizingTeacher, can_remember
from weft.objectives.distil_projections import add_projections, remove_projections
from weft.objectives.distil_tasks import (
    IntermediateDistillation,
    PredictionDistillation,
    uniform_mapping,
    wanted_for_layers,
)
from weft.objectives.distil_teacher import Teacher, Wanted
from weft.objectives.distil_text import Distillation, TextDistillation, TextLosses
from weft.objectives.objective import Batch
from weft.recipe.distil import DistilSection
from weft.recipe.finetune import FinetunePlan
from weft.recipe.recipe import Recipe
from weft.tasks.batches import groups
from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec, input_spec_for
from weft.tasks.learning.finetune_inputs import FinetuneInputs
from weft.tasks.learning.plan import make_finetune_plan, train_spec
from weft.tasks.learning.saving import write_task_model
from weft.tasks.learning.splits import Splits
from weft.tasks.learning.train_once import train_once
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task, TaskObjective, batch_of
from weft.threads import use_threads
from weft.tokens.order import Order
from weft.train.budget import read_budget
from weft.train.build import Built
from weft.train.loop import Hooks, train
from weft.train.processes import Processes
from weft.train.run_folder import MODEL
from weft.train.training_log import read_metrics

_TRIED = 8  # examples
_FEW_EPOCHS = 3  # in which the student learns as much without dropout, and faster
_RATE_FACTOR = 2.0  # of the first stage's rate: a squared error of hidden states bears larger steps


@dataclass
class TaskDistillation:
    """A run: what is known before its first step."""

    section: DistilSection
    base: Path
    folder: Path
    teacher: LoadedModel
    task: Task
    splits: Splits
    processes: Processes
    plans: StagePlans

    @cached_property
    def input_spec(self) -> InputSpec:
        if self.section.sequence_length is None:
            return self.teacher.input_spec
        model = self.teacher
        architecture = model.network.architecture
        return input_spec_for(architecture, model.description, model.tokenizer, self.section.sequence_length)

    @property
    def given(self) -> FinetuneInputs:
        settings = finetune_section(self.section, self.task.name)
        return FinetuneInputs(settings, self.base, self.task, self.splits, self.teacher.tokenizer, self.processes)

    @cached_property
    def inputs(self) -> list[Input]:
        """What the student reads, with augmented texts or the teacher's own."""
        began = time.perf_counter()
        with self.processes.first_goes_ahead():  # it writes the file of the teacher's texts
            if not self.task.writes:
                examples = augment_examples(self)
            elif self.section.sequence_level:
                examples = with_teacher_texts(self, self.splits.train.examples)
            else:
                examples = self.splits.train.examples
        learned = replace(self.splits, train=replace(self.splits.train, examples=examples))
        found = replace(self.given, splits=learned).training_inputs(self.teacher.network.architecture, self.input_spec)
        if self.processes.is_first and "preparation_seconds" not in self.plans.known:
            self.plans.note("preparation_seconds", round(time.perf_counter() - began, 2))
        return found

    def student(self, dropout: float | None) -> Student:
        """The student before training."""
        section, task = self.section.student, self.task
        if isinstance(section, str):
            found = student_from_folder(self.base / section)
        else:
            outputs, head = max(task.outputs, 1), head_of_task(task, self.teacher)
            samples = self._samples()
            found = make_student(section, self.teacher, head, outputs, dropout, self.section.seed, samples)
        network = found.built.network
        task.prepare(network, self.splits.train.examples)
        theirs = dict(self.teacher.task_network.named_parameters())
        for name, parameter in network.named_parameters():
            if name.startswith("crf."):
                parameter.data.copy_(theirs[name])
        network.to(self.processes.device)
        return found

    def _samples(self) -> Iterator[Batch]:
        some = self.task.inputs(self.splits.train.examples[:SAMPLES], self.input_spec)
        return (batch_of(self.task, [some[i] for i in part]) for part in groups(some))

    @property
    def inner(self) -> TaskObjective:
        return TaskObjective(self.task, self.inputs)

    @property
    def has_two_stages(self) -> bool:
        return not self.task.writes and self.method == "tinybert" and self.section.intermediate > 0

    @property
    def method(self) -> str:
        """A student that only lacks layers begins so close to its teacher that the predictions teach it best."""
        student = self.section.student
        if self.section.method is not None or isinstance(student, str):
            return self.section.method or "kl"
        reshaped = (student.family, student.width, student.heads, student.inner, student.fresh or None)
        return "kl" if all(one is None for one in reshaped) else "tinybert"

    def plan(self, stage: str, built: Built, objective: Distillation, budget: str, rate: float | None) -> FinetunePlan:
        """The plan of a stage that is resumed, or a new one, which is saved."""
        if (found := self.plans.find(stage)) is not None:
            return found
        precision = self.plans.known.get(INTERMEDIATE, {}).get("precision") or self.section.precision
        settings = finetune_section(
            self.section, self.task.name, budget=budget, learning_rate=rate, precision=precision
        )
        held_out = self.task.inputs(self.splits.validation.examples, self.input_spec)
        plan = make_finetune_plan(
            settings,
            self.base,
            self.task,
            built.network,
            self.inputs,
            self.input_spec.most_tokens,
            held_out,
            objective,
            self.processes,
        )
        if stage == INTERMEDIATE and rate is None:
            plan = plan.model_copy(update={"learning_rate": float(f"{_RATE_FACTOR * plan.learning_rate:.2g}")})
        if stage == PREDICTION and self.remembers:
            plan = with_steps_of_later_epochs(plan, budget, settings, objective, len(self.inputs))
        return self.plans.add(stage, plan)

    @cached_property
    def remembers(self) -> bool:
        """Whether the teacher's answers of the first epoch serve in later ones."""
        if any(one.parts for one in self.inputs):  # several windows of a text share their logits
            return False
        some = range(min(_TRIED, len(self.inner)))
        batch = self.inner.batch(list(some), [0] * len(some), 0)
        return self.section.cache is None and can_remember(self.teacher.network, prediction_wanted(self), batch)

    def epochs(self, plan: FinetunePlan) -> float:
        return read_budget(plan.budget, "distil.budget").amount * plan.batch / len(self.inputs)

    def cached(self, wanted: Wanted, plan: FinetunePlan) -> Teacher:
        """The teacher of a stage, with its cache."""
        spec = train_spec(plan, plan.seed)
        place = None if self.section.cache is None else self.base / self.section.cache
        order = Order((len(self.inputs),), (1.0,), plan.seed)

        def first() -> Batch:
            indices = order.batch(0, spec.samples)
            return self.inner.batch([one.sample for one in indices], [one.epoch for one in indices], plan.seed)

        if wanted == prediction_wanted(self) and self.remembers:
            return MemorizingTeacher(self.teacher.network, wanted)
        limit, steps = self.section.cache_limit, spec.steps
        return cached_teacher(self.teacher.network, wanted, place, limit, plan.precision, first, steps)


def train_student(run: TaskDistillation, *, resume: bool) -> tuple[Task, Built, dict[str, Any]]:
    """Both stages. Returns the task with the student's thresholds, the trained student, and what training did."""
    with teaching(run.teacher.network, run.section.precision):
        return _train_student(run, resume=resume)


def _train_student(run: TaskDistillation, *, resume: bool) -> tuple[Task, Built, dict[str, Any]]:
    student = run.student(run.section.dropout or 0.0)
    built = student.built
    share = run.section.intermediate if run.has_two_stages else 0.0
    if run.has_two_stages:
        _match_layers(run, student, share_of_budget(run.section.budget, share), resume=resume)
    objective = prediction_objective(run, Teacher(run.teacher.network, prediction_wanted(run)))
    with run.processes.first_goes_ahead():
        plan = run.plan(
            PREDICTION, built, objective, share_of_budget(run.section.budget, 1 - share), run.section.learning_rate
        )
    use_threads(plan.threads)
    if run.section.dropout is None and not run.has_two_stages and run.epochs(plan) > _FEW_EPOCHS:
        built = run.student(None).built
    run.processes.say(f"Predictions: {_in_words(plan, built.network)}")
    objective = prediction_objective(run, run.cached(prediction_wanted(run), plan))
    task, results = train_once(
        run.given, built, run.input_spec, run.inputs, plan, plan.seed, run.folder, resume=resume, objective=objective
    )
    return task, built, {**results, "training_seconds": _seconds(run), "stages": _stage_facts(run)}


def _match_layers(run: TaskDistillation, student: Student, budget: str, *, resume: bool) -> None:
    """The first stage."""
    network, theirs = student.built.network, run.teacher.network.architecture
    mapping = uniform_mapping(network.architecture.layers, theirs.layers)
    wanted = wanted_for_layers(mapping)
    add_projections(network, ("embedding", "hidden"), theirs.width, student.hidden)
    objective = IntermediateDistillation(run.inner, Teacher(run.teacher.network, wanted), mapping)
    with run.processes.first_goes_ahead():
        plan = run.plan(INTERMEDIATE, student.built, objective, budget, run.section.intermediate_rate)
    use_threads(plan.threads)
    pairs = ", ".join(f"{layer + 1} ← {number}" for layer, number in enumerate(mapping))
    run.processes.say(f"Layers ({pairs}): {_in_words(plan, network)}")
    objective = replace(objective, teacher=run.cached(wanted, plan))
    order, place = Order((len(run.inputs),), (1.0,), plan.seed), run.folder / INTERMEDIATE
    spec = replace(train_spec(plan, plan.seed), patience=None)
    train(network, [objective], order, spec, place, resume=resume, hooks=Hooks(), processes=run.processes)
    remove_projections(network)


def prediction_wanted(run: TaskDistillation) -> Wanted:
    return Wanted(language_head=run.task.head) if run.task.writes else Wanted(answers=True)


def prediction_objective(run: TaskDistillation, teacher: Teacher) -> Distillation:
    section = run.section
    temperature = section.temperature or 1.0
    share = section.label_share
    if run.task.writes:  # both halves of sequence-level distillation: the teacher's texts, and its words in them
        share = 0.5 if share is None else share
        losses = TextLosses(soft=1 - share, hard=share, temperature=temperature)
        return TextDistillation(run.inner, teacher, run.task.head, losses)
    if share is None:  # new texts have no labels but the teacher's
        share = 0.5 if augmentation(run) is None else 0.0
    return PredictionDistillation(run.inner, teacher, temperature, share)


def _in_words(plan: FinetunePlan, network: Network) -> str:
    return (
        f"{plan.budget} of {plan.batch} examples, a student of {count_parameters(network):,} parameters; adamw at "
        f"{plan.learning_rate:g}; {plan.precision}."
    )


def _seconds(run: TaskDistillation) -> float:
    """Of the whole distillation: preparation and both stages, including those before a break."""
    logs = [read_metrics(place) for place in (run.folder / INTERMEDIATE, run.folder)]
    return round(run.plans.known.get("preparation_seconds", 0.0) + sum(log[-1]["seconds"] for log in logs if log), 1)


def _stage_facts(run: TaskDistillation) -> dict[str, Any]:
    names = ("budget", "batch", "learning_rate", "precision")
    return {
        stage: {name: run.plans.known[stage][name] for name in names}
        for stage in (INTERMEDIATE, PREDICTION)
        if stage in run.plans.known
    }


def save_student(run: TaskDistillation, task: Task, recipe: Recipe, built: Built, results: dict[str, Any]) -> None:
    steps = {LINEAGE: with_step(run.teacher.facts, "distil", run.teacher.folder or Path())}
    write_task_model(task, built, run.input_spec, run.folder / MODEL, recipe, results, steps)
