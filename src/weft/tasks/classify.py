"""One text, one label: sentiment, topic. Or any number of labels at once (`MultiLabel`).

    p(label | text) = softmax(W h + b),   or σ(W h + b) for each label by itself

with h the vector of the whole text (BERT's first token, GPT's last).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.evaluate.baselines.classify import LabelsClassifier, TextClassifier
from weft.evaluate.baselines.frozen import FrozenClassifier
from weft.evaluate.bootstrap import class_intervals, mean_interval, sum_intervals
from weft.evaluate.calibration import calibration
from weft.evaluate.classes import (
    class_figures,
    confusion,
    multilabel_counts,
    multilabel_figures,
    multilabel_figures_from_counts,
    per_class,
)
from weft.evaluate.judged import DetailTable, Judged
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives import answers
from weft.objectives.objective import Batch
from weft.tasks.encode import encode_texts
from weft.tasks.labelled.hold_out import group_examples
from weft.tasks.labels import balance, label_set, read_flags, read_label, read_labels, read_text, with_unseen
from weft.tasks.task import Embed, Example, Input, InputSpec, ScoredTask, UnseenLabel

MOST_IN_TABLE = 30  # labels in a confusion matrix that is looked at


@dataclass(frozen=True)
class Classify(ScoredTask):
    name: ClassVar[str] = "classify"
    head: ClassVar[str] = "sequence"
    roles: ClassVar[tuple[str, ...]] = ("text", "label")
    gold_roles: ClassVar[tuple[str, ...]] = ("label",)
    beside_with: ClassVar[tuple[str, ...]] = ("sklearn",)
    score: ClassVar[str] = "accuracy"
    uses_vectors: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1", "f1_weighted", "mcc")

    balanced: bool = False  # rare classes count as much as frequent ones
    weights: tuple[float, ...] | None = None  # of the classes, then

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        return Example(self.given(values), read_label(values.get("label")) if with_gold else None)

    def given(self, values: Mapping[str, Any]) -> Any:
        return read_text(values.get("text"))

    def classes(self, example: Example) -> Sequence[str]:
        return (example.gold,)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        counts = Counter(example.gold for example in train)
        labels = label_set(counts)
        if len(labels) < 2:
            raise InputError(
                f"All training examples have the label {labels[0]!r}: there is nothing to tell apart. Is it the right "
                "column (finetune.data.label)?"
            )
        return replace(self, labels=labels, weights=tuple(balance(counts, labels)) if self.balanced else None)

    def check(self, example: Example) -> None:
        if example.gold not in self.labels:
            raise UnseenLabel(f"has the label {example.gold!r}, which training never had")

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        encoded = encode_texts([example.given for example in examples], spec)
        return self._asked(encoded, examples)

    def _asked(self, encoded: list[Input], examples: Sequence[Example]) -> list[Input]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        return [replace(one, targets=numbers.get(examples[one.example].gold)) for one in encoded]

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        weights = None if self.weights is None else torch.tensor(self.weights)
        asked = answers.ClassAnswers(self.head, torch.tensor([one.targets for one in inputs]), weights=weights)
        return Batch(packed, answers={self.name: asked}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return list(network.head(self.head)(hidden, packed).float().softmax(-1).cpu().numpy())

    def _numbers(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> np.ndarray:
        numbers = {label: number for number, label in enumerate(labels or self.labels)}
        return np.asarray([numbers[example.gold] for example in examples])

    def figures(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> dict[str, float]:
        labels = with_unseen(self.labels, (example.gold for example in examples))
        table = confusion(self._numbers(examples, labels), np.stack(answers).argmax(-1), len(labels))
        return {name: float(value) for name, value in class_figures(table).items()}

    def judge(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> Judged:
        labels = with_unseen(self.labels, (example.gold for example in examples))
        gold, found = self._numbers(examples, labels), _widened(np.stack(answers), len(labels))
        guessed = found.argmax(-1)
        table = confusion(gold, guessed, len(labels))
        return Judged(
            self.figures(examples, answers),
            class_intervals(gold, guessed, len(labels)),
            credit=(gold == guessed).astype(float),
            severity=np.where(gold == guessed, 0.0, 1 - found[np.arange(len(gold)), gold]),
            tables=[class_table(labels, table), *confusion_table(labels, table)],
            calibration=calibration(found, gold),
        )

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        model = TextClassifier.fit([one.given for one in train], self._numbers(train).tolist(), len(self.labels))
        return "TF-IDF + logistic regression", list(model.probabilities([one.given for one in examples]))

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[np.ndarray], int]:
        learnt, asked = self._features(train, embed), self._features(examples, embed)
        groups = group_examples(self, train).of_example
        model = FrozenClassifier.fit(learnt, self._numbers(train).tolist(), len(self.labels), groups)
        return "untuned vectors + logistic regression", list(model.probabilities(asked)), len(train)

    def _features(self, examples: Sequence[Example], embed: Embed) -> list[np.ndarray]:
        return [embed([one.given for one in examples])]

    def shown(self, example: Example, answer: np.ndarray, *, details: bool = False) -> dict[str, Any]:
        best = int(answer.argmax())
        found: dict[str, Any] = {"label": self.labels[best], "score": round(float(answer[best]), 6)}
        if details:
            order = np.argsort(-answer, kind="stable")
            found["scores"] = {self.labels[i]: round(float(answer[i]), 6) for i in order}
        return found

    def in_words(self, example: Example) -> str:
        return example.given

    def gold_in_words(self, example: Example) -> str:
        return example.gold

    def answer_in_words(self, example: Example, answer: np.ndarray) -> str:
        return f"{self.labels[int(answer.argmax())]} ({answer.max():.0%})"


@dataclass(frozen=True)
class MultiLabel(Classify):
    """Any number of labels at once."""

    score: ClassVar[str] = "f1_micro"
    metrics: ClassVar[tuple[str, ...]] = ("f1_micro", "f1", "exact")

    separator: str | None = None  # between labels in a cell
    columns: tuple[str, ...] = ()  # one for each label, if they are not in one cell

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        if not with_gold:
            return Example(self.given(values), None)
        cell = values.get("label")
        labels = read_flags(cell or (), self.columns) if self.columns else read_labels(cell, self.separator)
        return Example(self.given(values), labels)

    def classes(self, example: Example) -> Sequence[str]:
        return example.gold

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        counts = Counter(label for example in train for label in example.gold)
        labels = self.columns or label_set(counts)
        if not labels:
            raise InputError("No training example has a label. Is it the right column (finetune.data.label)?")
        weights = None
        if self.balanced:  # of a label that is there: how many have it not, for each that has it
            weights = tuple(min((len(train) - counts[name]) / max(counts[name], 1), 100.0) for name in labels)
        return replace(self, labels=tuple(labels), weights=weights)

    def check(self, example: Example) -> None:
        if unknown := [label for label in example.gold if label not in self.labels]:
            raise UnseenLabel(f"has the label {unknown[0]!r}, which training never had")

    def _asked(self, encoded: list[Input], examples: Sequence[Example]) -> list[Input]:
        if any(example.gold is None for example in examples):
            return encoded
        rows = self._rows(examples).astype(np.float32)
        return [replace(one, targets=rows[one.example]) for one in encoded]

    def _rows(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> np.ndarray:
        """(N, L): who has which."""
        return np.asarray([[label in example.gold for label in labels or self.labels] for example in examples])

    def _all_labels(self, examples: Sequence[Example]) -> tuple[str, ...]:
        return with_unseen(self.labels, (label for example in examples for label in example.gold))

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        weights = None if self.weights is None else torch.tensor(self.weights)
        asked = answers.MultiLabelAnswers(
            self.head, torch.from_numpy(np.stack([one.targets for one in inputs])), weights
        )
        return Batch(packed, answers={self.name: asked}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return list(network.head(self.head)(hidden, packed).float().sigmoid().cpu().numpy())

    def figures(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> dict[str, float]:
        labels = self._all_labels(examples)
        return multilabel_figures(self._rows(examples, labels), _widened(np.stack(answers), len(labels)) > 0.5)

    def judge(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> Judged:
        labels = self._all_labels(examples)
        gold, found = self._rows(examples, labels), _widened(np.stack(answers), len(labels))
        exact = ((found > 0.5) == gold).all(-1).astype(float)
        tables = []
        rows = []
        for number, label in enumerate(labels):
            scores = per_class(confusion(gold[:, number], found[:, number] > 0.5, 2))[1]
            rows.append(score_row(label, scores))
        tables.append(DetailTable("Labels", SCORE_HEADINGS, rows))
        severity = np.abs(found - gold).max(-1) * (1 - exact)
        intervals = sum_intervals(multilabel_counts(gold, found > 0.5), multilabel_figures_from_counts) | {
            "exact": mean_interval(exact)
        }
        return Judged(self.figures(examples, answers), intervals, exact, severity, tables)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        model = LabelsClassifier.fit([one.given for one in train], self._rows(train))
        return "TF-IDF + logistic regression", list(model.probabilities([one.given for one in examples]))

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[np.ndarray], int]:
        (learnt,), (asked,) = self._features(train, embed), self._features(examples, embed)
        gold, answers = self._rows(train), np.zeros((len(examples), len(self.labels)))
        groups = group_examples(self, train).of_example
        for number in range(len(self.labels)):
            if 0 < gold[:, number].sum() < len(train):
                model = FrozenClassifier.fit([learnt], gold[:, number].astype(int).tolist(), 2, groups)
                answers[:, number] = model.probabilities([asked])[:, 1]
            else:
                answers[:, number] = gold[0, number]
        return "untuned vectors + logistic regression", list(answers), len(train)

    def shown(self, example: Example, answer: np.ndarray, *, details: bool = False) -> dict[str, Any]:
        order = np.argsort(-answer, kind="stable")
        found: dict[str, Any] = {"labels": [self.labels[i] for i in order if answer[i] > 0.5]}
        if details:
            found["scores"] = {self.labels[i]: round(float(answer[i]), 6) for i in order}
        return found

    def gold_in_words(self, example: Example) -> str:
        return ", ".join(example.gold) or "none"

    def answer_in_words(self, example: Example, answer: np.ndarray) -> str:
        return ", ".join(self.labels[i] for i in np.flatnonzero(answer > 0.5)) or "none"

    def settings(self) -> dict[str, Any]:
        return {"separator": self.separator, "columns": list(self.columns)}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, separator=settings.get("separator"), columns=tuple(settings.get("columns") or ()))


def _widened(chances: np.ndarray, labels: int) -> np.ndarray:
    """(N, labels): with 0 for labels that training never had."""
    return np.pad(chances, ((0, 0), (0, labels - chances.shape[1])))


SCORE_HEADINGS = ["", "precision", "recall", "F1", "how many"]


def score_row(name: str, score: Any) -> list[str]:
    return [name, f"{score.precision:.3f}", f"{score.recall:.3f}", f"{score.f1:.3f}", f"{score.support:,}"]


def class_table(labels: Sequence[str], table: np.ndarray, title: str = "Classes") -> DetailTable:
    rows = [score_row(label, score) for label, score in zip(labels, per_class(table), strict=True)]
    return DetailTable(title, SCORE_HEADINGS, rows)


def confusion_table(labels: Sequence[str], table: np.ndarray) -> list[DetailTable]:
    """None, if there are too many to look at."""
    if len(labels) > MOST_IN_TABLE:
        return []
    rows = [
        [label, *(f"{count:,}" if count else "·" for count in row)] for label, row in zip(labels, table, strict=True)
    ]
    return [DetailTable("Right (rows) and said (columns)", ["", *labels], rows)]
