"""Text classification: one label per text (`Classify`), or any number of labels (`MultiLabel`).

    p(label | text) = softmax(W h + b),   or σ(W h + b) for each label independently

h is the vector of the whole text: BERT's first token, GPT's last. A text that is longer than the model reads has
several windows; then W h + b is the mean over them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError, RecipeError
from weft.interchange.folder import Description
from weft.metrics.baselines.classify import TextClassifier
from weft.metrics.baselines.decided import labels_by_vectors, labels_by_words
from weft.metrics.baselines.frozen import FrozenClassifier
from weft.metrics.bootstrap import class_intervals, label_intervals
from weft.metrics.calibration import calibration
from weft.metrics.classes import class_figures, confusion, multilabel_figures
from weft.metrics.judged import Judged
from weft.metrics.thresholds import PLAIN_THRESHOLD
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives import answers
from weft.objectives.objective import Batch
from weft.progress import say
from weft.recipe.finetune import DataSection, FinetuneSection
from weft.tasks.batches import windows_in
from weft.tasks.calibrate import choose_thresholds, divide_by_temperature, is_above, read_threshold
from weft.tasks.encode import encode_texts, encode_windows, windows_for
from weft.tasks.example import Example, Input, UnseenLabel
from weft.tasks.input_spec import InputSpec
from weft.tasks.labelled.hold_out import group_examples
from weft.tasks.labels import balance, label_set, read_flags, read_label, read_labels, read_text, with_unseen
from weft.tasks.score_tables import abstention_table, class_table, confusion_table, label_table, with_zeros
from weft.tasks.scored_task import Embed, VectorTask, answer_inputs, head_labels
from weft.tasks.task import Task

MOST_WINDOWS = 64
_MOST_WEIGHT = 100.0  # of a rare label with `balanced: true`


@dataclass(frozen=True)
class Classify(VectorTask):
    name: ClassVar[str] = "classify"
    head: ClassVar[str] = "sequence"
    has_one_label: ClassVar[bool] = True
    roles: ClassVar[tuple[str, ...]] = ("text", "label")
    gold_roles: ClassVar[tuple[str, ...]] = ("label",)
    list_roles: ClassVar[tuple[str, ...]] = ("label",)
    recipe_settings: ClassVar[tuple[str, ...]] = (
        "balanced", "label_smoothing", "threshold", "windows", "data.several", "data.separator",
    )  # fmt: skip
    problem_type: ClassVar[str | None] = "single_label_classification"
    baseline_packages: ClassVar[tuple[str, ...]] = ("sklearn",)
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1", "f1_weighted", "mcc")
    default_metric: ClassVar[str] = "accuracy"
    balanced_metric: ClassVar[str] = "f1"
    metric_aliases: ClassVar[Mapping[str, str]] = {"f1_macro": "f1"}
    metric_titles: ClassVar[Mapping[str, str]] = {
        "f1": "macro F1", "f1_weighted": "weighted F1", "f1_micro": "micro F1", "mcc": "Matthews correlation",
        "exact": "exact match",
    }  # fmt: skip

    balanced: bool = False  # weigh classes so that rare ones count as much as frequent ones
    weights: tuple[float, ...] | None = None  # of the classes, if balanced
    windows: int = 1  # of a long text, at most

    @classmethod
    def _variant(cls, several: bool) -> "type[Classify]":
        return MultiLabel if several and "data.several" in cls.recipe_settings else cls

    @classmethod
    def from_section(cls, section: FinetuneSection, label: Any) -> Task:
        data = section.data
        several = _describes_several(data) or isinstance(label, list | tuple)
        kind = cls._variant(several if data.several is None else data.several)
        task = kind(metric=cls.metric_of(section), balanced=section.balanced)
        if kind.several:
            columns = tuple(data.label) if isinstance(data.label, list) else ()
            threshold = {} if section.threshold is None else {"threshold": section.threshold}
            return task.with_settings({"separator": data.separator, "columns": columns, **threshold})
        if section.threshold is not None:
            raise RecipeError(
                "finetune.threshold has no effect here: each example has one label. It belongs to data with several "
                "labels per example (finetune.data.several: true)."
            )
        return task

    @classmethod
    def check_section(cls, section: FinetuneSection) -> None:
        if section.data.several is False and _describes_several(section.data):
            raise RecipeError(
                "finetune.data.several is false, but finetune.data.separator or a list as finetune.data.label means "
                "several labels per example."
            )

    @classmethod
    def metrics_of_recipe(cls) -> tuple[str, ...]:
        return (*super().metrics_of_recipe(), *cls._variant(True).metrics)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], labels: tuple[str, ...]) -> Task:
        kind = cls._variant(bool(facts.get("several")))
        return super().from_facts(facts, labels) if kind is cls else kind.from_facts(facts, labels)

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        labels = head_labels(network, description, cls.head)
        if labels is None or network.head(cls.head).spec.outputs == 1:
            return None
        return cls._variant(description.config.get("problem_type") == MultiLabel.problem_type)(labels)

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
                f"All training examples have the label {labels[0]!r}; at least two labels are needed. Is it the right "
                "column (finetune.data.label)?"
            )
        return replace(self, labels=labels, weights=tuple(balance(counts, labels)) if self.balanced else None)

    def check(self, example: Example) -> None:
        if example.gold not in self.labels:
            raise UnseenLabel(f"has the label {example.gold!r}, which is not in the training data")

    def for_model(self, head: str, spec: InputSpec, train: Sequence[Example], section: FinetuneSection) -> Self:
        windows = section.windows or windows_for([one.given for one in train], spec)
        if windows > 1:
            say(f"Long texts are read in up to {windows} windows of {spec.most_tokens:,} tokens.")
        return replace(self, windows=windows)

    def most_tokens(self, spec: InputSpec) -> int:
        return self.windows * spec.most_tokens

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        texts = [example.given for example in examples]
        encoded = encode_texts(texts, spec) if self.windows == 1 else encode_windows(texts, spec, self.windows)
        return self._with_targets(encoded, examples)

    def _with_targets(self, encoded: list[Input], examples: Sequence[Example]) -> list[Input]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        return [replace(one, targets=numbers.get(examples[one.example].gold)) for one in encoded]

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        weights = None if self.weights is None else torch.tensor(self.weights)
        values, windows = torch.tensor([one.targets for one in inputs]), windows_in(inputs)
        targets = answers.ClassAnswers(self.head, values, weights=weights, windows=windows)
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return list(self.logits(network, hidden, packed, inputs).softmax(-1).cpu().numpy())

    def logits(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> Tensor:
        """(inputs, labels): of a text with several windows, the mean over them."""
        return answers.mean_of_windows(network.head(self.head)(hidden, packed).float(), windows_in(inputs))

    def calibrate(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> dict[str, float]:
        """By a temperature. Of examples with one label the best label stays the best."""
        return divide_by_temperature(self, network, examples, inputs, self._logit_rows, self._decisions)

    def _logit_rows(self, *read: Any) -> list[np.ndarray]:
        return list(self.logits(*read).cpu().numpy())

    def _decisions(self, logits: np.ndarray, targets: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Logits of the alternatives, (decisions, alternatives), and the right one of each."""
        return logits, np.asarray(targets)

    def _numbers(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> np.ndarray:
        numbers = {label: number for number, label in enumerate(labels or self.labels)}
        return np.asarray([numbers[example.gold] for example in examples])

    def figures(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> dict[str, float]:
        labels = with_unseen(self.labels, (example.gold for example in examples))
        matrix = confusion(self._numbers(examples, labels), np.stack(answers).argmax(-1), len(labels))
        return {name: float(value) for name, value in class_figures(matrix).items()}

    def judge(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> Judged:
        labels = with_unseen(self.labels, (example.gold for example in examples))
        gold, found = self._numbers(examples, labels), with_zeros(np.stack(answers), len(labels))
        predicted = found.argmax(-1)
        matrix = confusion(gold, predicted, len(labels))
        return Judged(
            self.figures(examples, answers),
            class_intervals(gold, predicted, len(labels)),
            credit=(gold == predicted).astype(float),
            severity=np.where(gold == predicted, 0.0, 1 - found[np.arange(len(gold)), gold]),
            tables=[class_table(labels, matrix), *confusion_table(labels, matrix), *abstention_table(found, gold)],
            calibration=calibration(found, gold),
        )

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        model = TextClassifier.fit([one.given for one in train], self._numbers(train).tolist(), len(self.labels))
        return "TF-IDF + logistic regression", list(model.probabilities([one.given for one in examples]))

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[np.ndarray], int]:
        known, wanted = self._features(train, embed), self._features(examples, embed)
        groups = group_examples(self, train).of_example
        model = FrozenClassifier.fit(known, self._numbers(train).tolist(), len(self.labels), groups)
        return "untuned vectors + logistic regression", list(model.probabilities(wanted)), len(train)

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
        return f"{self.decision(example, answer)} ({answer.max():.0%})"

    def decision(self, example: Example, answer: np.ndarray) -> str:
        return self.labels[int(answer.argmax())]

    def settings(self) -> dict[str, Any]:
        return {"windows": self.windows} if self.windows > 1 else {}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        windows = settings.get("windows", 1)
        if type(windows) is not int or not 1 <= windows <= MOST_WINDOWS:
            raise TypeError(f"the number of windows is not between 1 and {MOST_WINDOWS}")
        return super().with_settings(settings)


@dataclass(frozen=True)
class MultiLabel(Classify):
    """Any number of labels per text."""

    several: ClassVar[bool] = True
    has_one_label: ClassVar[bool] = False
    problem_type: ClassVar[str | None] = "multi_label_classification"
    default_metric: ClassVar[str] = "f1_micro"
    metrics: ClassVar[tuple[str, ...]] = ("f1_micro", "f1", "exact")

    separator: str | None = None  # between the labels in a cell
    columns: tuple[str, ...] = ()  # one per label, with 1 or 0 in each cell
    threshold: float | tuple[float, ...] = PLAIN_THRESHOLD  # of all labels, or one for each that validation has chosen
    is_threshold_given: bool = False  # by the recipe, so none is chosen

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
        if self.balanced:  # weight: the ratio of negative to positive examples of each label
            ratios = ((len(train) - counts[name]) / max(counts[name], 1) for name in labels)
            weights = tuple(min(ratio, _MOST_WEIGHT) for ratio in ratios)
        return replace(self, labels=tuple(labels), weights=weights)

    def check(self, example: Example) -> None:
        if unknown := [label for label in example.gold if label not in self.labels]:
            raise UnseenLabel(f"has the label {unknown[0]!r}, which is not in the training data")

    def _with_targets(self, encoded: list[Input], examples: Sequence[Example]) -> list[Input]:
        if any(example.gold is None for example in examples):
            return encoded
        rows = self._rows(examples).astype(np.float32)
        return [replace(one, targets=rows[one.example]) for one in encoded]

    def _decisions(self, logits: np.ndarray, targets: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Each label of each text is a decision of its own: no or yes."""
        return np.stack([np.zeros(logits.size), logits.ravel()], 1), np.stack(targets).ravel().astype(int)

    def _rows(self, examples: Sequence[Example], labels: Sequence[str] = ()) -> np.ndarray:
        """(N, L): True where the example has the label."""
        return np.asarray([[label in example.gold for label in labels or self.labels] for example in examples])

    def _all_labels(self, examples: Sequence[Example]) -> tuple[str, ...]:
        return with_unseen(self.labels, (label for example in examples for label in example.gold))

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        weights = None if self.weights is None else torch.tensor(self.weights)
        flags = torch.from_numpy(np.stack([one.targets for one in inputs]))
        targets = answers.MultiLabelAnswers(self.head, flags, weights, windows_in(inputs))
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return list(self.logits(network, hidden, packed, inputs).sigmoid().cpu().numpy())

    def figures(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> dict[str, float]:
        labels = self._all_labels(examples)
        predicted = is_above(with_zeros(np.stack(answers), len(labels)), self.threshold)
        return multilabel_figures(self._rows(examples, labels), predicted)

    def judge(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> Judged:
        labels = self._all_labels(examples)
        gold, found = self._rows(examples, labels), with_zeros(np.stack(answers), len(labels))
        predicted = is_above(found, self.threshold)
        exact = (predicted == gold).all(-1).astype(float)
        severity = np.abs(found - gold).max(-1) * (1 - exact)
        intervals, tables = label_intervals(gold, predicted), [label_table(labels, gold, predicted)]
        return Judged(self.figures(examples, answers), intervals, exact, severity, tables)

    def calibrate(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> dict[str, float]:
        """A threshold that the recipe gave belongs to the probabilities as they were trained."""
        return {} if self.is_threshold_given else super().calibrate(network, examples, inputs)

    def with_thresholds_from(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> Self:
        if self.is_threshold_given:
            return self
        found, counted = answer_inputs(self, network, examples, inputs), f"{len(examples):,} {self.counted_as}"
        return replace(self, threshold=choose_thresholds(np.stack(found), self._rows(examples), counted))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        texts = [one.given for one in (*train, *examples)]
        groups = group_examples(self, train).of_example if isinstance(self.threshold, tuple) else None
        return "TF-IDF + logistic regression", list(labels_by_words(texts, self._rows(train), groups))

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[np.ndarray], int]:
        vectors = np.concatenate([*self._features(train, embed), *self._features(examples, embed)])
        groups, decides = group_examples(self, train).of_example, not self.is_threshold_given
        answers = labels_by_vectors(vectors, self._rows(train), groups, decides=decides)
        return "untuned vectors + logistic regression", list(answers), len(train)

    def shown(self, example: Example, answer: np.ndarray, *, details: bool = False) -> dict[str, Any]:
        order, predicted = np.argsort(-answer, kind="stable"), is_above(answer, self.threshold)
        found: dict[str, Any] = {"labels": [self.labels[i] for i in order if predicted[i]]}
        if details:
            found["scores"] = {self.labels[i]: round(float(answer[i]), 6) for i in order}
        return found

    def gold_in_words(self, example: Example) -> str:
        return ", ".join(example.gold) or "none"

    def answer_in_words(self, example: Example, answer: np.ndarray) -> str:
        return self.decision(example, answer)

    def decision(self, example: Example, answer: np.ndarray) -> str:
        return ", ".join(self.labels[i] for i in np.flatnonzero(is_above(answer, self.threshold))) or "none"

    def settings(self) -> dict[str, Any]:
        found = {**super().settings(), "separator": self.separator, "columns": list(self.columns)}
        if self.threshold == PLAIN_THRESHOLD and not self.is_threshold_given:
            return found
        return found | {"threshold": list(self.threshold) if isinstance(self.threshold, tuple) else self.threshold}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        task = super().with_settings({key: settings[key] for key in ("windows",) if key in settings})
        found: dict[str, Any] = {
            "separator": settings.get("separator"),
            "columns": tuple(settings.get("columns") or ()),
        }
        if "threshold" in settings:
            found["threshold"] = read_threshold(settings["threshold"], self.labels)
            found["is_threshold_given"] = not isinstance(found["threshold"], tuple)
        return replace(task, **found)


def _describes_several(data: DataSection) -> bool:
    return data.separator is not None or isinstance(data.label, list)
