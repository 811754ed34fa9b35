"""How good a model is at its task, next to a classical method, and what it costs.

The whole of the data is answered, judged with intervals, sliced by length; the baseline learns from the same training
data and answers the same questions. Latency is measured one example at a time, throughput in batches.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from weft.errors import needs
from weft.evaluate.difference import PairedDifference, paired_difference
from weft.evaluate.judged import Judged
from weft.model.network import count_parameters
from weft.progress import Gauge, say
from weft.tasks.catalog import metric_title
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec
from weft.tasks.judging.untuned import Untuned
from weft.tasks.judging.verdict import verdict_line
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

EXAMPLES_AT_ONCE = 256
SLICES = 4
SHOWN = 20  # mistakes, examples


def say_cut(cut: int, count: int, reader: InputSpec) -> None:
    if cut:
        say(f"{cut:,} of {count:,} are longer than {reader.most_tokens:,} tokens: cut, or read in windows.")


@dataclass(frozen=True)
class Compared:
    name: str
    judged: Judged
    seconds: float  # to learn and to answer
    difference: PairedDifference | None = None  # of the model to it, in the deciding figure
    differences: dict[str, PairedDifference] = field(default_factory=dict)  # in all that have intervals
    learnt_from: int | None = None  # examples, if not all

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "figures": self.judged.figures,
            "intervals": {name: [gap.low, gap.high] for name, gap in self.judged.intervals.items()},
            "seconds": round(self.seconds, 2),
        }
        if self.difference is not None:
            found["difference"] = self.difference.facts()
            found["differences"] = {name: gap.facts() for name, gap in self.differences.items()}
        if self.learnt_from is not None:
            found["training_examples"] = self.learnt_from
        return found


@dataclass(frozen=True)
class Evaluation:
    task: Task
    where: str
    examples: list[Example]
    answers: list[Any]
    judged: Judged
    slices: list[tuple[str, int, float]]  # lengths, how many, mean credit
    cost: dict[str, Any]
    cut: int = 0  # examples that are longer than the model reads
    baseline: Compared | None = None
    untuned: Compared | None = None
    notes: tuple[str, ...] = ()  # what to know before the figures are believed
    facts: dict[str, Any] = field(default_factory=dict)  # how figures came about: from which raw text

    @property
    def figures(self) -> dict[str, float]:
        """The one that decides first."""
        return {self.score: self.judged.figures[self.score], **self.judged.figures}

    @property
    def score(self) -> str:
        return self.task.main_metric(self.judged.figures)

    def summary(self) -> dict[str, Any]:
        """The figures, with intervals, and the baseline's: one JSON object."""
        found: dict[str, Any] = {
            "examples": len(self.examples),
            "figures": self.figures,
            "intervals": {name: [gap.low, gap.high] for name, gap in self.judged.intervals.items()},
            "cost": self.cost,
        }
        if self.notes:
            found["notes"] = list(self.notes)
        found |= self.facts
        if self.cut:
            found["cut"] = self.cut
        if self.judged.calibration is not None:
            found["calibration"] = {"ece": self.judged.calibration.ece, "brier": self.judged.calibration.brier}
        for name, beside in (("baseline", self.baseline), ("untuned", self.untuned)):
            if beside is not None:
                found[name] = beside.summary()
        if verdicts := self.verdicts():
            found["verdicts"] = verdicts
        return {"verdict": verdict_line({"task": self.task.name, **found}), **found}

    @property
    def verdict(self) -> str:
        return self.summary()["verdict"]

    def verdicts(self) -> list[str]:
        """One sentence about each difference."""
        found = []
        for name, one in self._others().items():
            if (gap := one.difference) is not None:
                metric = metric_title(gap.figure, self.task.name)
                found.append(f"Against the {name} ({one.name}): {gap.verdict} in {metric}.")
                if one is self.untuned and not gap.is_ahead:
                    found[-1] += " Tuning does not beat the untuned model."
        return found

    def _others(self) -> dict[str, Compared]:
        others = {"baseline": self.baseline, "untuned model": self.untuned}
        return {name: one for name, one in others.items() if one is not None}

    def mistakes(self, most: int = SHOWN) -> list[tuple[Example, Any]]:
        """The hardest first; none that is right."""
        order = [i for i in np.argsort(-self.judged.severity, kind="stable") if self.judged.credit[i] < 1]
        return [(self.examples[i], self.answers[i]) for i in order[:most]]


def require_packages(task: Task | type[Task], *, beside: bool, without: str) -> None:
    """An error at once, not after the training, if one of the optional packages that judge is not there. `without` says
    how to have nothing `beside` the model.
    """
    for package in task.metric_packages:
        needs(package, "tasks", f"to judge {task.name}")
    for package in task.baseline_packages if beside else ():
        needs(package, "tasks", f"for a classical method beside the model ({without} goes without)")


def training_facts(results: Mapping[str, Any], examples: int | None = None) -> dict[str, Any]:
    """What training cost, of a run's results."""
    names = ("parameters", "parameters_tuned", "training_seconds", "steps", "tokens")
    found = {name: results[name] for name in names if name in results}
    return found if examples is None else {**found, "training_examples": examples}


def evaluate_on(
    model: LoadedModel,
    split: LabelledSplit,
    train: Sequence[Example] | None,
    *,
    training: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
    untuned: Untuned | None = None,
) -> Evaluation:
    """`train`: what a baseline learns from; none is made without. `untuned`: answers to the same examples."""
    task, examples = model.required_task, split.judged
    if split.unseen:
        notes = [*notes, split.unseen_sentence()]
        say(notes[-1])
    began = time.perf_counter()
    answers, cut = _answer_all(model, split)
    say_cut(cut, len(examples), model.input_spec)
    seconds = time.perf_counter() - began
    judged = task.judge(examples, answers)
    measured = task.measure(model.task_network, examples, answers, model.input_spec)
    judged.figures.update(measured.figures)
    judged.intervals.update(measured.intervals)
    cost = {**(training or {}), "parameters": count_parameters(model.task_network), **_cost(model, examples, seconds)}
    baseline = None
    if train is not None:
        say("Training the classical baseline beside it ...")
        began = time.perf_counter()
        name, guessed = task.baseline(train, examples)
        beside = task.judge(examples, guessed)
        more = task.measure_baseline(train, examples)
        beside.figures.update(more.figures)
        beside.intervals.update(more.intervals)
        baseline = _beside(name, task, judged, beside, time.perf_counter() - began)
    before = None if untuned is None else _judge_untuned(task, examples, judged, untuned)
    slices = _slices(task, examples, judged.credit)
    return Evaluation(
        task, split.where, examples, answers, judged, slices, cost, cut, baseline, before, tuple(notes), measured.facts
    )


def _judge_untuned(task: Task, examples: Sequence[Example], tuned: Judged, untuned: Untuned) -> Compared:
    """Only by what does not depend on the scale of the answers: a cosine is no number of stars."""
    judged = task.judge(examples, untuned.answers)
    known = task.known_metrics
    figures, intervals = (
        {name: value for name, value in one.items() if name in known} for one in (judged.figures, judged.intervals)
    )
    judged = replace(judged, figures=figures, intervals=intervals)  # type: ignore[arg-type]
    found = _beside(untuned.name, task, tuned, judged, untuned.seconds)
    return replace(found, learnt_from=untuned.learnt_from)


def _beside(name: str, task: Task, ours: Judged, theirs: Judged, seconds: float) -> Compared:
    gaps = {figure: gap for figure in ours.figures if (gap := paired_difference(figure, ours, theirs)) is not None}
    return Compared(name, theirs, seconds, gaps.get(task.main_metric(ours.figures)), gaps)


def score_on(model: LoadedModel, split: LabelledSplit) -> float:
    """The figure that decides, alone."""
    task, answers = model.required_task, _answer_all(model, split)[0]
    return task.score(model.task_network, split.judged, answers, model.input_spec)


def _answer_all(model: LoadedModel, split: LabelledSplit) -> tuple[list[Any], int]:
    """The answers, and how many examples were longer than the model reads."""
    examples, unit = split.judged, model.required_task.counted_as
    say(f"{model.folder or 'The model'} answers the {len(examples):,} {unit} of {split.where} ...")
    answers: list[Any] = []
    cut = 0
    with Gauge("Answering", unit=unit, total_items=len(examples)) as gauge:
        for start in range(0, len(examples), EXAMPLES_AT_ONCE):
            found, too_long = model.answers_and_cut(examples[start : start + EXAMPLES_AT_ONCE])
            answers += found
            cut += too_long
            gauge.add(len(found))
    return answers, cut


def _cost(model: LoadedModel, examples: Sequence[Example], seconds: float) -> dict[str, Any]:
    single = []
    count = model.required_task.timed_examples
    picked = np.unique(np.linspace(0, len(examples) - 1, count).astype(int))
    model.answers([examples[picked[0]]])  # the first makes things ready
    for index in picked:
        began = time.perf_counter()
        model.answers([examples[index]])
        single.append(1000 * (time.perf_counter() - began))
    return {
        "latency_ms_p50": round(float(np.quantile(single, 0.5)), 2),
        "latency_ms_p95": round(float(np.quantile(single, 0.95)), 2),
        "examples_per_second": round(len(examples) / max(seconds, 1e-9), 1),
    }


def _slices(task: Task, examples: Sequence[Example], credit: np.ndarray) -> list[tuple[str, int, float]]:
    """Short and long examples apart, as many of each."""
    lengths = np.asarray([len(task.in_words(example)) for example in examples])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, SLICES + 1)).astype(int))
    edges = edges if len(edges) > 1 else np.repeat(edges, 2)  # all of one length
    found = []
    for low, high in pairwise(edges.tolist()):
        inside = (lengths >= low) & ((lengths < high) | ((high == edges[-1]) & (lengths <= high)))
        if inside.any():
            found.append((f"{low:,} to {high:,} characters", int(inside.sum()), float(credit[inside].mean())))
    return found
