"""Regression metrics: Pearson and Spearman correlations, RMSE and MAE."""

import numpy as np
from numpy.typing import ArrayLike

from weft.metrics.examples import check_pairs


def value_figures(gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """The metrics of predicted numbers. A correlation with a constant is undefined and reported as 0."""
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    check_pairs(gold, predicted)
    return {
        **order_figures(gold, predicted),
        "rmse": float(np.sqrt(np.mean((predicted - gold) ** 2))),
        "mae": float(np.abs(predicted - gold).mean()),
    }


def order_figures(gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """The metrics that do not depend on the scale of the predictions."""
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    check_pairs(gold, predicted)
    return {
        "pearson": _correlation(gold, predicted),
        "spearman": _correlation(rank_of_each(gold), rank_of_each(predicted)),
    }


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if (a == a[0]).all() or (b == b[0]).all():  # not by the variance, which rounding makes positive
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a / np.linalg.norm(a)) @ (b / np.linalg.norm(b)), -1, 1))


def rank_of_each(values: np.ndarray) -> np.ndarray:
    """Ranks from 1. Ties share their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
