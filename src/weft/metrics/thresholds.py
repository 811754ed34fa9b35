"""Thresholds for examples with any number of labels: a label is predicted if its probability is above its own.

The threshold of 0.5 makes the fewest mistakes, but a rare label has its best F1 far below (Lipton et al. 2014). So each
label gets the threshold with its best F1 on held-out examples. That cannot lower macro F1 there. It could lower micro
F1, by many predictions of one poor label: the labels that cost most keep 0.5, as few of them as it takes.
"""

import numpy as np
from numpy.typing import ArrayLike

from weft.metrics.classes import ratio
from weft.metrics.examples import check_pairs

PLAIN_THRESHOLD = 0.5
_LEAST_EXAMPLES, _LEAST_POSITIVES = 100, 5  # in all, and of a label; with fewer, chance would choose


def label_thresholds(probabilities_NL: ArrayLike, gold_NL: ArrayLike) -> np.ndarray:
    """(L,), each between 0 and 1. `gold_NL`: True where the example has the label."""
    probabilities, gold = np.asarray(probabilities_NL, np.float64), np.asarray(gold_NL, bool)
    check_pairs(gold, probabilities)
    found = np.full(gold.shape[1], PLAIN_THRESHOLD)
    if len(gold) < _LEAST_EXAMPLES:
        return found
    for label in np.flatnonzero(gold.sum(0) >= _LEAST_POSITIVES):
        found[label] = _best_threshold(probabilities[:, label], gold[:, label])
    is_kept = _keeping_micro_f1(probabilities > PLAIN_THRESHOLD, probabilities > found, gold)
    return np.where(is_kept, found, PLAIN_THRESHOLD)


def _best_threshold(probabilities_N: np.ndarray, gold_N: np.ndarray) -> float:
    """The threshold with the best F1; of several, the one nearest to 0.5. F1 only changes at the probabilities."""
    edges = np.unique(np.concatenate([[0.0], probabilities_N, [1.0]]))
    tried = np.append((edges[1:] + edges[:-1]) / 2, PLAIN_THRESHOLD)
    parts = probabilities_N, probabilities_N[gold_N]
    predicted, right = (len(part) - np.searchsorted(np.sort(part), tried, "right") for part in parts)
    f1 = ratio(2 * right, predicted + gold_N.sum())
    best = tried[f1 == f1.max()]
    return float(best[np.abs(best - PLAIN_THRESHOLD).argmin()])


def _keeping_micro_f1(plain_NL: np.ndarray, chosen_NL: np.ndarray, gold_NL: np.ndarray) -> np.ndarray:
    """(L,) bool: the labels that take their chosen predictions, as many as micro F1 allows.

    Micro F1 is S / T with S = 2 Σ right and T = Σ (gold + predicted). It does not fall below the plain S / T if the sum
    over labels of ΔS · T − S · ΔT is at least 0. These are whole numbers, so no rounding decides.
    """
    rights = [(predicted & gold_NL).sum(0) for predicted in (plain_NL, chosen_NL)]
    counts = [predicted.sum(0) for predicted in (plain_NL, chosen_NL)]
    S, T = 2 * rights[0].sum(), gold_NL.sum() + counts[0].sum()
    gains = 2 * (rights[1] - rights[0]) * T - S * (counts[1] - counts[0])
    order = np.argsort(-gains, kind="stable")
    is_kept = np.zeros(len(gains), bool)
    is_kept[order] = np.cumsum(gains[order]) >= 0
    return is_kept
