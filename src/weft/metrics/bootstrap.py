"""Confidence intervals: the percentile bootstrap (Efron 1979; for translations Koehn 2004) and Wilson's interval.

Each of a thousand rounds draws as many examples as the test set has, with replacement, and computes the metric. The
middle 95 % of the results is the interval. Most metrics are computed without the examples: a mean from one value per
example, metrics of a confusion matrix from each example's cell, entity F1 and BLEU from counts that are summed over
examples. Only rank correlations need the examples again. All draw the same examples in the same round, so two models
can be compared round by round (difference.py).
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import InputError
from weft.metrics.classes import class_figures, multilabel_counts, multilabel_figures_from_counts

_FiguresOfSums = Callable[[np.ndarray], dict[str, np.ndarray]]
BOOTSTRAP_ROUNDS, CONFIDENCE_LEVEL, BOOTSTRAP_SEED = 1000, 0.95, 0
_FEWEST_CLUSTERS = 10
_MOST_NUMBERS = 4_000_000  # held in memory at a time: 32 MB


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    # The metric in each round. Test sets of the same size draw the same examples in the same round.
    drawn: np.ndarray | None = field(default=None, compare=False, repr=False)


def proportion_interval(right: int, total: int, *, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Wilson's interval (1927). If all or none are right, a bootstrap interval would have no width."""
    _check_any(total)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = right / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    # Rounding must not exclude the exact 0 or 1.
    return (0.0 if right == 0 else max(0.0, middle - half)), (1.0 if right == total else min(1.0, middle + half))


def mean_interval(
    values: ArrayLike, *, rounds: int = BOOTSTRAP_ROUNDS, level: float = CONFIDENCE_LEVEL, seed: int = BOOTSTRAP_SEED
) -> Interval:
    """The interval of a mean over examples. If all values are 0 or 1 it is Wilson's."""
    values = np.asarray(values, np.float64)
    _check_any(len(values))
    drawn = _drawn_sums(values[:, None], rounds, seed)[:, 0] / len(values)
    if ((values == 0) | (values == 1)).all():
        return Interval(*proportion_interval(int(values.sum()), len(values), level=level), drawn)
    return _middle(drawn, level)


def clustered_mean_interval(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    rounds: int = BOOTSTRAP_ROUNDS,
    level: float = CONFIDENCE_LEVEL,
    seed: int = BOOTSTRAP_SEED,
) -> Interval:
    """The interval of a mean over dependent examples, such as questions about one text: whole clusters are drawn.

    It is never narrower than that of independent examples. With fewer than ten clusters examples count as independent.
    """
    values = np.asarray(values, np.float64)
    alone = mean_interval(values, rounds=rounds, level=level, seed=seed)
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    if len(numbers) == len(values) or len(numbers) < _FEWEST_CLUSTERS:
        return alone
    of = np.asarray([numbers[cluster] for cluster in clusters])
    sums = _drawn_sums(np.stack([np.bincount(of, values), np.bincount(of)], 1), rounds, seed)
    found = _middle(sums[:, 0] / sums[:, 1], level)
    return Interval(min(found.low, alone.low), max(found.high, alone.high), found.drawn)


def sum_intervals(
    counts: np.ndarray,
    figures: _FiguresOfSums,
    *,
    rounds: int = BOOTSTRAP_ROUNDS,
    level: float = CONFIDENCE_LEVEL,
    seed: int = BOOTSTRAP_SEED,
) -> dict[str, Interval]:
    """Intervals of metrics that are functions of sums. `counts`: (examples, …); `figures` receives sums (rounds, …)."""
    _check_any(len(counts))
    flat = counts.reshape(len(counts), -1).astype(np.float64)
    sums = _drawn_sums(flat, rounds, seed).reshape(rounds, *counts.shape[1:])
    return {name: _middle(values, level) for name, values in figures(sums).items()}


def label_intervals(gold_NL: np.ndarray, predicted_NL: np.ndarray) -> dict[str, Interval]:
    """Intervals of all `multilabel_figures`; Wilson's for "exact"."""
    found = sum_intervals(multilabel_counts(gold_NL, predicted_NL), multilabel_figures_from_counts)
    return found | {"exact": mean_interval((gold_NL == predicted_NL).all(-1))}


def class_intervals(
    gold: np.ndarray,
    predicted: np.ndarray,
    labels: int,
    *,
    rounds: int = BOOTSTRAP_ROUNDS,
    level: float = CONFIDENCE_LEVEL,
    seed: int = BOOTSTRAP_SEED,
) -> dict[str, Interval]:
    """Intervals of all `class_figures`; Wilson's for accuracy."""
    _check_any(len(gold))
    occurs, both = np.unique(np.concatenate([gold, predicted]), return_inverse=True)  # of possibly thousands of labels
    count, size = len(occurs), len(gold)
    cells = both[:size] * count + both[size:]
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[np.ndarray]] = {}
    for some in _parts(rounds, count * count):
        picked = (cells[generator.integers(size, size=size)] for _ in range(some))
        confusions = np.array([np.bincount(row, minlength=count * count) for row in picked])
        for name, values in class_figures(confusions.reshape(some, count, count)).items():
            drawn.setdefault(name, []).append(values)
    found = {name: _middle(np.concatenate(values), level) for name, values in drawn.items()}
    low, high = proportion_interval(int((gold == predicted).sum()), size, level=level)
    return found | {name: Interval(low, high, found[name].drawn) for name in ("accuracy", "f1_micro")}


def example_intervals(
    examples: int,
    figures: Callable[[np.ndarray], dict[str, float]],
    *,
    rounds: int = BOOTSTRAP_ROUNDS,
    level: float = CONFIDENCE_LEVEL,
    seed: int = BOOTSTRAP_SEED,
) -> dict[str, Interval]:
    """Intervals of metrics that are not functions of sums, such as rank correlations.

    `figures` receives the indices of the drawn examples in each round.
    """
    _check_any(examples)
    generator = np.random.default_rng(seed)
    drawn = [figures(generator.integers(examples, size=examples)) for _ in range(rounds)]
    return {name: _middle(np.array([one[name] for one in drawn]), level) for name in drawn[0]}


def _drawn_sums(values: np.ndarray, rounds: int, seed: int) -> np.ndarray:
    """(rounds, K): sums of N rows of `values` (N, K), drawn with replacement."""
    size = len(values)
    generator = np.random.default_rng(seed)
    sums = []
    for some in _parts(rounds, size):
        times = [np.bincount(generator.integers(size, size=size), minlength=size) for _ in range(some)]
        sums.append(np.array(times, np.float64) @ values)  # one matrix product: fast with BLAS
    return np.concatenate(sums)


def _parts(rounds: int, numbers: int) -> Iterator[int]:
    """Splits the rounds into parts that fit into memory, if each round holds `numbers` numbers."""
    most = max(1, _MOST_NUMBERS // numbers)
    for start in range(0, rounds, most):
        yield min(most, rounds - start)


def _check_any(examples: int) -> None:
    if examples == 0:
        raise InputError("There are no examples, so there is no interval.")


def _middle(drawn: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), drawn)
