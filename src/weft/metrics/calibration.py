"""Calibration: does the confidence of a classifier match its accuracy?

Of all predictions with 80 % confidence, 80 % should be right. The expected calibration error (ECE, Naeini et al. 2015;
Guo et al. 2017) sorts predictions into ten bins of confidence and averages the gap between confidence and accuracy. The
Brier score (1950) is the squared distance between the probabilities and the one-hot gold label, summed over labels: 0
is best, 2 is certain and always wrong. (Some authors halve it for two labels.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from weft.metrics.examples import check_pairs

_BINS = 10


@dataclass(frozen=True)
class Bin:
    confidence: float  # mean of the top probabilities
    accuracy: float
    count: int


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
