"""Distillation on plain text: a small language model learns from a large one.

The corpus, its tokens, the plan, the loop and the measurements are those of pre-training; another network is built
(the student), and its loss compares with the teacher.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from weft.compress.distil.cache import cached_teacher
from weft.compress.distil.importance import SAMPLES
from weft.compress.distil.student import Student, make_student, student_from_folder
from weft.compress.distil.text_yardsticks import TextContestant, compare_texts
from weft.compress.lineage import LINEAGE, with_step
from weft.corpus.split import SplitName
from weft.inference.precision import teaching
from weft.interchange.folder import write_model
from weft.model.network import count_parameters
from weft.objectives.catalog import text_objective
from weft.objectives.distil_projections import add_projections, remove_projections
from weft.objectives.distil_teacher import Teacher
from weft.objectives.distil_text import TEXT_METHODS, TextDistillation, TextLosses, wanted_for_text
from weft.objectives.objective import Batch, Objective
from weft.recipe.distil import DistilSection
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan, PretrainSection
from weft.recipe.recipe import Recipe
from weft.tasks.loaded import LoadedModel
from weft.tokens.order import Order
from weft.train.budget import Budget
from weft.train.build import Built
from weft.train.plan.run_plan import make_run_plan
from weft.train.plan.trial import step_times
from weft.train.pretrain import PreparedRun, prepared_run, train_and_measure
from weft.train.pretrain_goal import check_pretrain
from weft.train.pretrain_inputs import PretrainInputs
from weft.train.processes import Processes
from weft.train.report import write_run_report
from weft.train.run_folder import MODEL, claim, finish, finished, load_run_plan, save_run_plan
from weft.train.text_evaluation import language_head
from weft.train.training_log import read_metrics

_RATE, _LENGTH = 5e-4, 128
_SAME = (
    *("budget", "accumulation", "weight_decay", "warmup", "clip", "dropout", "mask_share", "precision", "threads"),
    *("seed", "log_every", "validate_every", "checkpoint_every", "keep", "patience", "sequence_length"),
)
_ALONE = "alone"
_TRIAL_SECONDS, _STEPS_SHARE = 5.0, 0.95  # of steps that tell how long one takes; the rest is for validating

Teach = Callable[[Objective, PretrainPlan], Objective]


@dataclass(frozen=True)
class StudentInputs(PretrainInputs):
    """Pre-training's inputs with a student in the place of the recipe's model, and a teacher in its loss."""

    student: Student | None = None
    teach: Teach | None = None  # None: the plain loss

    def build(self, model: ModelSection, plan: PretrainPlan) -> Built:
        assert self.student is not None
        built = copy.deepcopy(self.student.built)
        built.network.to(self.device)
        return built

    def objectives(self, split: SplitName, plan: PretrainPlan) -> list[Objective]:
        found = super().objectives(split, plan)
        if split != "train" or self.teach is None:
            return found
        return [self.teach(objective, plan) for objective in found]


@dataclass(frozen=True)
class TextRun:
    section: DistilSection
    teacher: LoadedModel
    base: Path
    head: str

    @property
    def losses(self) -> TextLosses:
        section = self.section
        found = TEXT_METHODS[section.method or ("minilm+kl" if self.head == "masked" else "kl")]
        if section.label_share is not None:
            found = replace(found, soft=found.soft * (1 - section.label_share), hard=section.label_share)
        return found if section.temperature is None else replace(found, temperature=section.temperature)

    def student(self, inputs: PretrainInputs, plan: PretrainSection) -> Student:
        section = self.section
        if isinstance(section.student, str):
            found = student_from_folder(self.base / section.student)
        else:
            outputs, samples = 2, _samples(inputs, plan)
            found = make_student(
                section.student, self.teacher, self.head, outputs, section.dropout or 0.0, section.seed, samples
            )
        if self.losses.cosine:
            add_projections(found.built.network, ("hidden",), self.teacher.network.width, found.hidden)
        return found

    def teach(self, objective: Objective, teacher: Teacher) -> Objective:
        return TextDistillation(objective, teacher, self.head, self.losses)

    def live(self) -> Teacher:
        architecture = self.teacher.network.architecture
        stack = architecture.encoder or architecture.decoder
        assert stack is not None
        layer = stack.layers - 1 if self.section.teacher_layer is None else self.section.teacher_layer
        return Teacher(self.teacher.network, wanted_for_text(self.losses, self.head, layer))


def _samples(inputs: PretrainInputs, settings: PretrainSection) -> Iterator[Batch]:
    length = settings.sequence_length or _LENGTH
    plan = PretrainPlan(**{**_OPEN, **settings.model_dump(exclude_none=True), "sequence_length": length})
    for objective in inputs.objectives("train", plan):
        numbers = list(islice(range(len(objective)), SAMPLES))
        for start in range(0, len(numbers), 16):
            part = numbers[start : start + 16]
            yield objective.batch(part, [0] * len(part), 0)


_OPEN: dict[str, Any] = {
    "batch_tokens": 1, "learning_rate": 1.0, "precision": "float32", "compile": False, "log_every": 1,
    "validate_every": 1, "checkpoint_every": 1, "validation_tokens": 1,
}  # fmt: skip


def distil_text(
    recipe: Recipe,
    section: DistilSection,
    teacher: LoadedModel,
    base: Path,
    folder: Path,
    *,
    resume: bool,
    processes: Processes,
) -> dict[str, Any]:
    head = language_head(teacher.network)
    assert head is not None and teacher.folder is not None
    run = TextRun(section, teacher, base, head)
    settings = _pretrain_section(section, text_objective(head, teacher.results.get("objective")))
    as_pretraining = recipe.model_copy(
        update={"model": ModelSection(path=str(teacher.folder.resolve())), "pretrain": settings, "tokenizer": None}
    )
    goal, sources = check_pretrain(as_pretraining, base)

    def adapt(inputs: PretrainInputs) -> PretrainInputs:
        student, live = run.student(inputs, goal.settings), run.live()
        return StudentInputs(**vars(inputs), student=student, teach=lambda objective, plan: run.teach(objective, live))

    with claim(folder, recipe, base, resume=resume, processes=processes):
        if resume and (results := finished(folder)):
            processes.say(f"{folder} is finished already.")
            return results
        began = time.perf_counter()
        with teaching(teacher.network, section.precision):
            prepared = prepared_run(as_pretraining, base, folder, goal, sources, processes, resume=resume, adapt=adapt)
            preparation = time.perf_counter() - began
            prepared = _with_cache(run, prepared)
            built, results = _train(run, prepared, resume=resume)
        results["training_seconds"] = round(read_metrics(folder)[-1]["seconds"] + preparation, 1)
        if processes.is_first:
            results = _finish(run, recipe, prepared, built, results, resume=resume)
        return processes.broadcast(results)


def _pretrain_section(section: DistilSection, objective: str) -> PretrainSection:
    values: dict[str, Any] = {name: getattr(section, name) for name in _SAME}
    if section.batch is not None:
        values["sequence_length"] = section.sequence_length or _LENGTH
        values["batch_tokens"] = section.batch * values["sequence_length"]
    rate = section.learning_rate or _RATE
    fixed: dict[str, Any] = {
        "objective": objective,
        "optimizer": "adamw",
        "learning_rate": rate,
        "compile": False,
    }
    return PretrainSection(**values, **fixed)


def _with_cache(run: TextRun, prepared: PreparedRun) -> PreparedRun:
    """The same run with a teacher that finds its earlier outputs, if the recipe names a folder for them."""
    inputs, plan = prepared.inputs, prepared.plan.settings
    assert isinstance(inputs, StudentInputs)
    if run.section.cache is None:
        return prepared
    spec, plain = inputs.spec(plan), replace(inputs, teach=None).objectives("train", plan)
    order = Order(tuple(map(len, plain)), inputs.data.weights, plan.seed)

    def first() -> Batch:
        indices = [one for one in order.batch(0, -(-spec.samples // spec.accumulation)) if one.source == 0]
        return plain[0].batch([one.sample for one in indices], [one.epoch for one in indices], plan.seed)

    wanted, place = run.live().wanted, run.base / run.section.cache
    batches = spec.steps * spec.accumulation
    teacher = cached_teacher(
        run.teacher.network, wanted, place, run.section.cache_limit, plan.precision, first, batches
    )
    return replace(prepared, inputs=replace(inputs, teach=lambda objective, plan: run.teach(objective, teacher)))


def _train(run: TextRun, prepared: PreparedRun, *, resume: bool) -> tuple[Built, dict[str, Any]]:
    plan = prepared.plan.settings
    built = prepared.inputs.build(prepared.plan.model, plan)
    architecture, method = built.saved, run.section.method or ("minilm+kl" if run.head == "masked" else "kl")
    prepared.processes.say(
        f"Plan: a {architecture.family} student of {architecture.layers} layers, {architecture.width} wide, "
        f"{count_parameters(built.network):,} parameters (teacher: {count_parameters(run.teacher.network):,}); "
        f"{method}; {plan.budget} of {plan.batch_tokens:,} tokens; adamw at {plan.learning_rate:g}; {plan.precision}."
    )
    results = train_and_measure(prepared, built, resume=resume)
    remove_projections(built.network)
    return built, {**results, "parameters": count_parameters(built.network), "teacher": str(run.teacher.folder)}


def _finish(
    run: TextRun,
    recipe: Recipe,
    prepared: PreparedRun,
    built: Built,
    results: dict[str, Any],
    *,
    resume: bool,
) -> dict[str, Any]:
    folder = prepared.folder
    steps = with_step(run.teacher.facts, "distil", run.teacher.folder or Path())
    facts = {"recipe": recipe.given_settings(), "results": results, LINEAGE: steps}
    files = prepared.inputs.tokenizer.saved_files()
    saved_as = write_model(built.to_save(), built.description, folder / MODEL, files=files, facts=facts)
    if run.section.yardsticks:
        alone = _alone(prepared, results["training_seconds"], resume=resume)
        untrained = prepared.inputs.build(prepared.plan.model, prepared.plan.settings).network
        networks = {"teacher": run.teacher.network, _ALONE: alone, "untrained": untrained}
        contestants = {name: TextContestant(network) for name, network in networks.items()}
        found = compare_texts(prepared.inputs, prepared.plan.settings, TextContestant(built.network), contestants)
        results = {**results, **found}
    results = {**results, "model": str(folder / MODEL), "format": saved_as}
    finish(folder, results)
    write_run_report(folder)
    return results


def _alone(prepared: PreparedRun, seconds: float, *, resume: bool) -> Any:
    """The same student, trained on the text alone for as long."""
    inputs, model, plan = prepared.inputs, prepared.plan.model, prepared.plan.settings
    assert isinstance(inputs, StudentInputs)
    place = prepared.folder / _ALONE
    place.mkdir(exist_ok=True)
    plain = replace(inputs, teach=None)
    prepared.processes.say(f"Training the same student without the teacher for {seconds:,.0f} s ...")
    found = load_run_plan(place, model) if resume else None
    if found is None:
        open_again = {"log_every": None, "validate_every": None, "checkpoint_every": None, "validation_tokens": None}
        steps = _steps_in(seconds, plain, plan)
        settings = PretrainSection(**{**plan.model_dump(), **open_again, "budget": f"{steps} steps", "warmup": 0.06})
        found = make_run_plan(model, settings, plain, Budget(steps, "steps"), None)
        save_run_plan(place, prepared.recipe, prepared.base, found.model, found.settings)
    run = replace(prepared, folder=place, inputs=plain, plan=found)
    built = plain.build(model, found.settings)
    remove_projections(built.network)
    train_and_measure(run, built, resume=resume)
    return built.network


def _steps_in(seconds: float, inputs: PretrainInputs, plan: PretrainPlan) -> int:
    """How many steps without the teacher take as long."""
    objectives, spec = inputs.objectives("train", plan), inputs.spec(plan)
    order = Order(tuple(map(len, objectives)), inputs.data.weights, plan.seed)
    network = inputs.build(ModelSection(path="student"), plan).network
    times = step_times(network, objectives, order, spec, min(_TRIAL_SECONDS, 0.03 * seconds) + 1e-3)
    return max(1, int(_STEPS_SHARE * seconds / mean(times)))
