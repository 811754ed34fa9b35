"""Calibration: does the confidence of a classifier match its accuracy?

Of all predictions with 80 % confidence, 80 % should be right. The expected calibration error (ECE, Naeini et al. 2015;
Guo et al. 2017) sorts predictions into ten bins of confidence and averages the gap between confidence and accuracy. The
Brier score (1950) is the squared distance between the probabilities and the one-hot gold label, summed over labels: 0
is best, 2 is certain and always wrong. (Some authors halve it for two labels.)

A temperature T divides all logits: softmax(z / T). It changes no decision, only how sure they are (Guo et al. 2017).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from weft.metrics.examples import check_pairs

_BINS = 10
_COLDEST, _HOTTEST = 0.1, 10.0  # temperatures
_HALVINGS = 50


@dataclass(frozen=True)
class Bin:
    confidence: float  # mean of the top probabilities
    accuracy: float
    count: int


@dataclass(frozen=True)
class Abstention:
    """With answers of this confidence and more, and none otherwise, so much is answered with this accuracy."""

    confidence: float
    answered: float  # share
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    ece: float
    brier: float
    bins: tuple[Bin, ...]  # by rising confidence, without empty bins


def calibration(probabilities_NL: ArrayLike, gold: ArrayLike) -> Calibration:
    probabilities, gold = np.asarray(probabilities_NL, np.float64), np.asarray(gold)
    check_pairs(gold, probabilities)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == gold
    edges = np.linspace(0, 1, _BINS + 1)[1:-1]  # a bin includes its upper edge, as in Guo et al.
    place = np.digitize(confidence, edges, right=True)
    bins = tuple(
        Bin(float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
        for inside in (place == number for number in range(_BINS))
        if inside.any()
    )
    return Calibration(
        ece=sum(one.count * abs(one.accuracy - one.confidence) for one in bins) / len(gold),
        brier=float(((probabilities**2).sum(1) - 2 * probabilities[np.arange(len(gold)), gold] + 1).mean()),
        bins=bins,
    )


def abstention(probabilities_NL: ArrayLike, gold: ArrayLike, accuracy: float) -> Abstention | None:
    """The lowest confidence from which on answers have the wanted accuracy. None if there is no such confidence."""
    probabilities, gold = np.asarray(probabilities_NL, np.float64), np.asarray(gold)
    check_pairs(gold, probabilities)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == gold
    order = np.argsort(-confidence, kind="stable")
    sure, accuracies = confidence[order], np.cumsum(right[order]) / np.arange(1, len(gold) + 1)
    is_last = np.append(sure[1:] != sure[:-1], True)  # of equal confidences, all are answered or none
    enough = np.flatnonzero(is_last & (accuracies >= accuracy))
    if not len(enough):
        return None
    return Abstention(float(sure[enough[-1]]), float((enough[-1] + 1) / len(gold)), float(accuracies[enough[-1]]))


def best_temperature(logits_NL: ArrayLike, gold: ArrayLike) -> float:
    """The temperature with which the gold labels are most probable.

    −Σ q log softmax(z β) is convex in β = 1 / T, and its derivative is Σ p z − Σ q z: bisection finds its zero. The
    wanted probabilities q have 1 / (N + 2) for all labels together and the rest for the gold one (as in Platt 1999): if
    all N examples are right, that does not show that the model is never wrong.
    """
    logits, gold = np.asarray(logits_NL, np.float64), np.asarray(gold)
    check_pairs(gold, logits)
    doubt = 1 / (len(gold) + 2)
    wanted = ((1 - doubt) * logits[np.arange(len(gold)), gold] + doubt * logits.mean(1)).mean()
    low, high = 1 / _HOTTEST, 1 / _COLDEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = (_softmax(logits * middle) * logits).sum(1).mean() - wanted
        low, high = (low, middle) if slope > 0 else (middle, high)
    return 2 / (low + high)


def log_loss(logits_NL: np.ndarray, gold: np.ndarray) -> float:
    """The mean of −log p(gold), in nats."""
    logits = np.asarray(logits_NL, np.float64)
    top = logits.max(1)
    return float((np.log(np.exp(logits - top[:, None]).sum(1)) + top - logits[np.arange(len(gold)), gold]).mean())


def _softmax(logits_NL: np.ndarray) -> np.ndarray:
    powers = np.exp(logits_NL - logits_NL.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
