"""Right and wrong classes, counted.

One class per example: everything follows from the confusion matrix, so the figures are computed from it, and for a
whole stack of matrices at once, which is how the bootstrap asks. Several classes per example: two tables of yes and
no. The definitions are scikit-learn's, with 0 wherever there is nothing to divide by.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from weft.metrics.examples import check_pairs


@dataclass(frozen=True)
class ClassScore:
    precision: float
    recall: float
    f1: float
    support: int  # how many there are in the gold


def confusion(gold: ArrayLike, predicted: ArrayLike, labels: int) -> np.ndarray:
    """(labels, labels) counts; rows are gold, columns predicted."""
    gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    check_pairs(gold, predicted)
    both = np.concatenate([gold, predicted])
    if both.min() < 0 or both.max() >= labels:  # would be counted in the cell of another pair
        raise ValueError(f"a label outside of 0 … {labels - 1}")
    return np.bincount(gold * labels + predicted, minlength=labels * labels).reshape(labels, labels)


def class_figures(confusions: np.ndarray) -> dict[str, np.ndarray]:
    """Figures of shape (…) from matrices of shape (…, L, L). The mean in "f1" (macro) is over the labels that occur, in
    gold or predicted.
    """
    counts = confusions.astype(np.float64)
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    gold, predicted, total = counts.sum(-1), counts.sum(-2), counts.sum((-2, -1))
    f1 = ratio(2 * right, gold + predicted)
    accuracy = ratio(right.sum(-1), total)
    return {
        "accuracy": accuracy,
        "f1": ratio(f1.sum(-1), ((gold + predicted) > 0).sum(-1)),
        "f1_micro": accuracy,  # every false positive of one class is a false negative of another
        "f1_weighted": ratio((f1 * gold).sum(-1), total),
        "mcc": _matthews(right.sum(-1), gold, predicted, total),
    }


def per_class(confusion: np.ndarray) -> list[ClassScore]:
    return [
        class_score(right, predicted, gold)
        for right, predicted, gold in zip(np.diagonal(confusion), confusion.sum(0), confusion.sum(1), strict=True)
    ]


def multilabel_figures(gold_NL: ArrayLike, predicted_NL: ArrayLike) -> dict[str, float]:
    """Any number of classes per example. The mean in "f1" (macro) is over all L, also those that never occur; "exact"
    asks for the very same set; "hamming" is a loss: the share of wrong cells.
    """
    sums = multilabel_counts(gold_NL, predicted_NL).sum(0)
    return {name: float(value) for name, value in multilabel_figures_from_counts(sums).items()}


def multilabel_counts(gold_NL: ArrayLike, predicted_NL: ArrayLike) -> np.ndarray:
    """(N, 2 L + 2): labels found and labels in either, each counted by label; then 1 if all are right, and 1."""
    gold, predicted = np.asarray(gold_NL, bool), np.asarray(predicted_NL, bool)
    check_pairs(gold, predicted)
    right, both = gold & predicted, gold.astype(np.int64) + predicted
    return np.column_stack([right, both, (gold == predicted).all(1), np.ones(len(gold), bool)])


def multilabel_figures_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Figures of shape (…) from sums of shape (…, 2 L + 2)."""
    labels = (counts.shape[-1] - 2) // 2
    right, both = counts[..., :labels], counts[..., labels : 2 * labels]
    exact, examples = counts[..., -2], counts[..., -1]
    return {
        "f1_micro": ratio(2 * right.sum(-1), both.sum(-1)),
        "f1": ratio(2 * right, both).mean(-1),
        "exact": ratio(exact, examples),
        "hamming": ratio((both - 2 * right).sum(-1), examples * labels),
    }


def class_score(right: int, predicted: int, gold: int) -> ClassScore:
    return ClassScore(
        precision=float(ratio(right, predicted)),
        recall=float(ratio(right, gold)),
        f1=float(ratio(2 * right, predicted + gold)),
        support=int(gold),
    )


def ratio(part: ArrayLike, whole: ArrayLike) -> np.ndarray:
    """part / whole, and 0 where the whole is 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def _matthews(right: np.ndarray, gold: np.ndarray, predicted: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Gorodkin 2004: the correlation of gold and predicted, both as one-hot vectors. 0 if either is always the same."""
    covariance = right * total - (gold * predicted).sum(-1)
    spread = (total**2 - (gold**2).sum(-1)) * (total**2 - (predicted**2).sum(-1))
    return ratio(covariance, np.sqrt(spread))
