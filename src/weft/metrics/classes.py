"""Classification metrics, for one or for any number of labels per example.

With one label per example, all metrics are computed from the confusion matrix, for a stack of matrices at once (as the
bootstrap needs). With any number of labels, they are computed from two boolean matrices. The definitions are those of
scikit-learn, with 0 for a division by 0.
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
    support: int  # number of gold examples


def confusion(gold: ArrayLike, predicted: ArrayLike, labels: int) -> np.ndarray:
    """(labels, labels) counts; rows are gold, columns predicted."""
    gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
    check_pairs(gold, predicted)
    both = np.concatenate([gold, predicted])
    if both.min() < 0 or both.max() >= labels:  # would be counted in a wrong cell
        raise ValueError(f"a label outside of 0 … {labels - 1}")
    return np.bincount(gold * labels + predicted, minlength=labels * labels).reshape(labels, labels)


def class_figures(confusions: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of shape (…) from confusion matrices of shape (…, L, L). "f1" is the macro mean over the labels that
    occur in gold or predictions.
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
    """Metrics for any number of labels per example. "f1" is the macro mean over all L labels, even those that never
    occur. "exact": the share of examples with exactly the gold labels. "hamming": the share of wrong cells.
    """
    sums = multilabel_counts(gold_NL, predicted_NL).sum(0)
    return {name: float(value) for name, value in multilabel_figures_from_counts(sums).items()}


def multilabel_counts(gold_NL: ArrayLike, predicted_NL: ArrayLike) -> np.ndarray:
    """(N, 2 L + 2): per label, true positives and gold + predicted; then 1 if all labels are right; then 1."""
    gold, predicted = np.asarray(gold_NL, bool), np.asarray(predicted_NL, bool)
    check_pairs(gold, predicted)
    right, both = gold & predicted, gold.astype(np.int64) + predicted
    return np.column_stack([right, both, (gold == predicted).all(1), np.ones(len(gold), bool)])


def multilabel_figures_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of shape (…) from sums of shape (…, 2 L + 2)."""
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
    """part / whole; 0 where whole is 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def _matthews(right: np.ndarray, gold: np.ndarray, predicted: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Matthews correlation for any number of labels (Gorodkin 2004); 0 if gold or predictions are constant."""
    covariance = right * total - (gold * predicted).sum(-1)
    spread = (total**2 - (gold**2).sum(-1)) * (total**2 - (predicted**2).sum(-1))
    return ratio(covariance, np.sqrt(spread))
