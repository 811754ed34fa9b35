"""How far a figure can be trusted: the percentile bootstrap (Efron 1979; for translations Koehn 2004), and Wilson's
interval for the share of examples that are right.

A test set is a sample. Draw as many examples out of it, with replacement, a thousand times, and measure each time: the
middle 95 % of what comes out is the interval. Few figures need the examples again for that (a correlation of ranks
does). A mean needs one value per example; a figure of a confusion matrix each example's cell; and F1 of entities or
BLEU only the counts which are summed over examples before they are divided. All draw the same examples in the same
round, so that two who have answered the same questions can be compared round by round (difference.py).
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import InputError
from weft.metrics.classes import class_figures

_FiguresOfSums = Callable[[np.ndarray], dict[str, np.ndarray]]
BOOTSTRAP_ROUNDS, CONFIDENCE_LEVEL, BOOTSTRAP_SEED = 1000, 0.95, 0
_FEWEST_CLUSTERS = 10
_MOST_NUMBERS = 4_000_000  # numbers that are drawn and held at a time, 32 MB


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    # The figure in each round. Whoever is measured on as many examples is measured on the same ones, round by round.
    drawn: np.ndarray | None = field(default=None, compare=False, repr=False)


def proportion_interval(right: int, total: int, *, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Wilson's (1927): also where all or none are right, of which a bootstrap would be certain."""
    _check_any(total)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = right / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    # At the ends rounding must not leave the truth outside.
    return (0.0 if right == 0 else max(0.0, middle - half)), (1.0 if right == total else min(1.0, middle + half))


def mean_interval(
    values: ArrayLike, *, rounds: int = BOOTSTRAP_ROUNDS, level: float = CONFIDENCE_LEVEL, seed: int = BOOTSTRAP_SEED
) -> Interval:
    """Of the mean of a value per example. If all are 0 or 1 it is a proportion, with Wilson's interval."""
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
    """Of the mean of a value per example, where examples of one cluster (questions about one text) are right or wrong
    together: clusters are drawn, each as a whole. Never narrower than if every example stood for itself; a few clusters
    cannot be drawn from, so then it does.
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
    """Of figures that follow from sums: `counts` is (examples, …), and `figures` gets (rounds, …)."""
    _check_any(len(counts))
    flat = counts.reshape(len(counts), -1).astype(np.float64)
    sums = _drawn_sums(flat, rounds, seed).reshape(rounds, *counts.shape[1:])
    return {name: _middle(values, level) for name, values in figures(sums).items()}


def class_intervals(
    gold: np.ndarray,
    predicted: np.ndarray,
    labels: int,
    *,
    rounds: int = BOOTSTRAP_ROUNDS,
    level: float = CONFIDENCE_LEVEL,
    seed: int = BOOTSTRAP_SEED,
) -> dict[str, Interval]:
    """Of all `class_figures`; of the share that is right, Wilson's."""
    _check_any(len(gold))
    occurs, both = np.unique(np.concatenate([gold, predicted]), return_inverse=True)  # there may be thousands of others
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
    """Of figures that follow from no sum, as a correlation of ranks: `figures` gets the numbers of the drawn examples
    and measures anew, round by round.
    """
    _check_any(examples)
    generator = np.random.default_rng(seed)
    drawn = [figures(generator.integers(examples, size=examples)) for _ in range(rounds)]
    return {name: _middle(np.array([one[name] for one in drawn]), level) for name in drawn[0]}


def _drawn_sums(values: np.ndarray, rounds: int, seed: int) -> np.ndarray:
    """(rounds, K) sums of as many rows of `values` (N, K) as there are, drawn with replacement."""
    size = len(values)
    generator = np.random.default_rng(seed)
    sums = []
    for some in _parts(rounds, size):
        times = [np.bincount(generator.integers(size, size=size), minlength=size) for _ in range(some)]
        sums.append(np.array(times, np.float64) @ values)  # one product of matrices, for BLAS to be quick
    return np.concatenate(sums)


def _parts(rounds: int, numbers: int) -> Iterator[int]:
    """How many of the rounds to do at a time, if each holds so many numbers."""
    most = max(1, _MOST_NUMBERS // numbers)
    for start in range(0, rounds, most):
        yield min(most, rounds - start)


def _check_any(examples: int) -> None:
    if examples == 0:
        raise InputError("There are no examples to draw from, so there is no interval.")


def _middle(drawn: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), drawn)
