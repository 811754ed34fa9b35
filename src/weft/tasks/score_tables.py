"""Tables of a report: precision, recall and F1 of each class, and the confusion matrix, and what can be
answered with how much confidence."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.metrics.calibration import abstention
from weft.metrics.classes import confusion, per_class
from weft.metrics.judged import DetailTable

_MOST_IN_MATRIX = 30  # labels; larger confusion matrices are unreadable
_WANTED_ACCURACIES = (0.9, 0.95, 0.98, 0.99)
_LEAST_ANSWERED = 30  # examples; fewer do not tell an accuracy
_HEADINGS = ["", "precision", "recall", "F1", "support"]


def score_table(title: str, scores: Sequence[tuple[str, Any]]) -> DetailTable:
    """`scores`: a name and its `ClassScore` per row."""
    rows = [
        [name, f"{score.precision:.3f}", f"{score.recall:.3f}", f"{score.f1:.3f}", f"{score.support:,}"]
        for name, score in scores
    ]
    return DetailTable(title, _HEADINGS, rows)


def class_table(labels: Sequence[str], matrix: np.ndarray, title: str = "Classes") -> DetailTable:
    return score_table(title, list(zip(labels, per_class(matrix), strict=True)))


def label_table(labels: Sequence[str], gold_NL: np.ndarray, predicted_NL: np.ndarray) -> DetailTable:
    """Of examples with any number of labels."""
    pairs = zip(gold_NL.T, predicted_NL.T, strict=True)
    scores = [per_class(confusion(gold, predicted, 2))[1] for gold, predicted in pairs]
    return score_table("Labels", list(zip(labels, scores, strict=True)))


def confusion_table(labels: Sequence[str], matrix: np.ndarray) -> list[DetailTable]:
    """An empty list if there are too many labels to read."""
    if len(labels) > _MOST_IN_MATRIX:
        return []
    rows = [
        [label, *(f"{count:,}" if count else "·" for count in row)] for label, row in zip(labels, matrix, strict=True)
    ]
    return [DetailTable("Confusion matrix: gold (rows) × predicted (columns)", ["", *labels], rows)]


def abstention_table(probabilities: np.ndarray, gold: np.ndarray) -> list[DetailTable]:
    """What is left if only sure answers are given. Empty if no accuracy above that of all answers can be had."""
    overall = float((probabilities.argmax(1) == gold).mean())
    found = [abstention(probabilities, gold, wanted) for wanted in _WANTED_ACCURACIES if wanted > overall]
    enough = dict.fromkeys(one for one in found if one is not None and one.answered * len(gold) >= _LEAST_ANSWERED)
    if not enough:
        return []
    rows = [[_floored(one.confidence), f"{one.answered:.1%}", f"{one.accuracy:.1%}"] for one in enough]
    title = "Answering only where the model is sure (chosen on these examples)"
    return [DetailTable(title, ["least confidence", "answered", "accuracy of these"], rows)]


def _floored(share: float) -> str:
    """Rounded down, so that what has this confidence is not below it."""
    return f"{math.floor(share * 10_000) / 10_000:.4f}"


def with_zeros(probabilities: np.ndarray, labels: int) -> np.ndarray:
    """(N, labels): probability 0 for labels that are not in the training data."""
    return np.pad(probabilities, ((0, 0), (0, labels - probabilities.shape[1])))
