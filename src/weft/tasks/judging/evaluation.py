"""How good a model is at its task, beside a baseline, and what it costs.

The model answers all examples. The answers are scored, with intervals, and sliced by length. The baseline trains on the
same training data and answers the same examples. Latency is measured one example at a time, throughput in batches.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from weft.errors import needs
from weft.metrics.difference import PairedDifference, paired_difference
from weft.metrics.judged import Judged
from weft.model.network import count_parameters
from weft.progress import Gauge, say
from weft.tasks.catalog import metric_title
from weft.tasks.example import Example
from weft.tasks.judging.label_suspects import Suspect, label_suspects
from weft.tasks.judging.untuned import Untuned
from weft.tasks.judging.verdict import tuning_warning, verdict_line
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

EXAMPLES_AT_ONCE, WRITTEN_AT_ONCE = 256, 64  # of tasks that score; of tasks that write, which are slower
LENGTH_SLICES = 4
SHOWN_MISTAKES = 20


def examples_at_once(task: Task) -> int:
    """How many are answered between two signs of progress: enough to group them by length."""
    return WRITTEN_AT_ONCE if task.writes else EXAMPLES_AT_ONCE


def say_cut(cut: int, count: int, most: int) -> None:
    """`most`: tokens that are read at once."""
    if cut:
        say(f"{cut:,} of {count:,} are longer than {most:,} tokens: truncated or read in windows.")


@dataclass(frozen=True)
class Compared:
    """What the model is compared with: the baseline, or the model before tuning."""

    name: str
    judged: Judged
    seconds: float  # to train and to answer
    difference: PairedDifference | None = None  # the model minus this, in the main metric
    differences: dict[str, PairedDifference] = field(default_factory=dict)  # in every metric with an interval
    training_examples: int | None = None  # if it was not trained on all of them

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
        if self.training_examples is not None:
            found["training_examples"] = self.training_examples
        return found


@dataclass(frozen=True)
class Evaluation:
    task: Task
    where: str
    examples: list[Example]
    answers: list[Any]
    judged: Judged
    slices: list[tuple[str, int, float]]  # range of lengths, number of examples, mean credit
    cost: dict[str, Any]
    cut: int = 0  # examples that are longer than the model reads
    baseline: Compared | None = None
    untuned: Compared | None = None
    notes: tuple[str, ...] = ()  # caveats
    facts: dict[str, Any] = field(default_factory=dict)  # how metrics were measured, such as the raw text used
    suspects: tuple[Suspect, ...] = ()  # training examples whose labels may be wrong

    @property
    def figures(self) -> dict[str, float]:
        """All metrics, the main one first."""
        return {self.score: self.judged.figures[self.score], **self.judged.figures}

    @property
    def score(self) -> str:
        return self.task.main_metric(self.judged.figures)

    def summary(self) -> dict[str, Any]:
        """Metrics, intervals, comparisons and cost as one JSON object."""
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
        for key, other in (("baseline", self.baseline), ("untuned", self.untuned)):
            if other is not None:
                found[key] = other.summary()
        if verdicts := self.verdicts():
            found["verdicts"] = verdicts
        return {"verdict": verdict_line({"task": self.task.name, **found}), **found}

    @property
    def verdict(self) -> str:
        return self.summary()["verdict"]

    def verdicts(self) -> list[str]:
        """A sentence about each comparison, in the main metric."""
        found = []
        for name, other in (("baseline", self.baseline), ("untuned model", self.untuned)):
            if other is not None and (gap := other.difference) is not None:
                metric = metric_title(gap.figure, self.task.name)
                found.append(f"Against the {name} ({other.name}): {gap.verdict} in {metric}.")
        if self.untuned is not None and (warning := tuning_warning({"untuned": self.untuned.summary()})):
            found[-1] += f" {warning}"
        return found

    def mistakes(self, most: int = SHOWN_MISTAKES) -> list[tuple[Example, Any]]:
        """Wrong answers, the worst first."""
        order = [i for i in np.argsort(-self.judged.severity, kind="stable") if self.judged.credit[i] < 1]
        return [(self.examples[i], self.answers[i]) for i in order[:most]]


def require_packages(task: Task | type[Task], *, baseline: bool, without: str) -> None:
    """Raises InputError, before any training, if evaluation needs a package that is not installed. `without`: the
    setting that skips the baseline.
    """
    for package in task.metric_packages:
        needs(package, "tasks", f"to evaluate {task.name}")
    for package in task.baseline_packages if baseline else ():
        needs(package, "tasks", f"for the baseline ({without} skips it)")


def training_facts(results: Mapping[str, Any], examples: int | None = None) -> dict[str, Any]:
    """What training cost, from a run's results."""
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
    """`train`: training data of the baseline. Default: no baseline. `untuned`: its answers to the same examples."""
    task, examples = model.required_task, split.judged
    if split.unseen:
        notes = [*notes, split.unseen_sentence()]
        say(notes[-1])
    began = time.perf_counter()
    answers, cut = answer_split(model, split)
    say_cut(cut, len(examples), task.most_tokens(model.input_spec))
    seconds = time.perf_counter() - began
    judged = task.judge(examples, answers)
    measured = task.measure(model.task_network, examples, answers, model.input_spec)
    judged.figures.update(measured.figures)
    judged.intervals.update(measured.intervals)
    cost = {**(training or {}), "parameters": count_parameters(model.task_network), **_cost(model, examples, seconds)}
    return Evaluation(
        task,
        split.where,
        examples,
        answers,
        judged,
        _slices(task, examples, judged.credit),
        cost,
        cut,
        baseline=None if train is None else _judge_baseline(task, train, examples, judged),
        untuned=None if untuned is None else _judge_untuned(task, examples, judged, untuned),
        notes=tuple(notes),
        facts=measured.facts,
        suspects=() if train is None else tuple(label_suspects(model, train)),
    )


def _judge_baseline(task: Task, train: Sequence[Example], examples: Sequence[Example], model: Judged) -> Compared:
    say("Training the baseline ...")
    began = time.perf_counter()
    name, answers = task.baseline(train, examples)
    judged = task.judge(examples, answers)
    measured = task.measure_baseline(train, examples)
    judged.figures.update(measured.figures)
    judged.intervals.update(measured.intervals)
    return _compare(name, task, model, judged, time.perf_counter() - began)


def _judge_untuned(task: Task, examples: Sequence[Example], model: Judged, untuned: Untuned) -> Compared:
    """Only in metrics that do not depend on the scale of the answers: a cosine is not on the scale of a rating."""
    judged = task.judge(examples, untuned.answers)
    known = task.known_metrics
    figures, intervals = (
        {name: value for name, value in one.items() if name in known} for one in (judged.figures, judged.intervals)
    )
    judged = replace(judged, figures=figures, intervals=intervals)  # type: ignore[arg-type]
    found = _compare(untuned.name, task, model, judged, untuned.seconds)
    return replace(found, training_examples=untuned.training_examples)


def _compare(name: str, task: Task, ours: Judged, theirs: Judged, seconds: float) -> Compared:
    gaps = {figure: gap for figure in ours.figures if (gap := paired_difference(figure, ours, theirs)) is not None}
    return Compared(name, theirs, seconds, gaps.get(task.main_metric(ours.figures)), gaps)


def score_on(model: LoadedModel, split: LabelledSplit) -> float:
    """The main metric alone."""
    task, answers = model.required_task, answer_split(model, split)[0]
    return task.score(model.task_network, split.judged, answers, model.input_spec)


def answer_split(model: LoadedModel, split: LabelledSplit) -> tuple[list[Any], int]:
    """The answers, and how many examples were longer than the model reads."""
    examples, unit = split.judged, model.required_task.counted_as
    say(f"Predicting {len(examples):,} {unit} of {split.where} with {model.folder or 'the model'} ...")
    answers: list[Any] = []
    cut = 0
    count = examples_at_once(model.required_task)
    with Gauge("Predicting", unit=unit, total_items=len(examples)) as gauge:
        for start in range(0, len(examples), count):
            found, too_long = model.answers_and_cut(examples[start : start + count])
            answers += found
            cut += too_long
            gauge.add(len(found))
    return answers, cut


def _cost(model: LoadedModel, examples: Sequence[Example], seconds: float) -> dict[str, Any]:
    """Latency and throughput; `seconds`: the time that all examples took."""
    single = []
    count = model.required_task.timed_examples
    picked = np.unique(np.linspace(0, len(examples) - 1, count).astype(int))
    model.answers([examples[picked[0]]])  # warm-up
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
    """The mean credit by length, in slices of about equal size."""
    lengths = np.asarray([len(task.in_words(example)) for example in examples])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_SLICES + 1)).astype(int))
    edges = edges if len(edges) > 1 else np.repeat(edges, 2)  # all have the same length
    found = []
    for low, high in pairwise(edges.tolist()):
        inside = (lengths >= low) & ((lengths < high) | ((high == edges[-1]) & (lengths <= high)))
        if inside.any():
            found.append((f"{low:,} to {high:,} characters", int(inside.sum()), float(credit[inside].mean())))
    return found
