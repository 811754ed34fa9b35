"""How far a figure can be trusted: the percentile bootstrap (Efron 1979; for translations Koehn 2004).

A test set is a sample. Draw as many examples out of it, with replacement, a thousand times, and measure each time: the
middle 95 % of what comes out is the interval. Few figures need the examples again for that (a correlation of ranks
does). A mean needs one value per example; a figure of a confusion matrix only its cells, for examples of a cell are
alike; and F1 of entities or BLEU only the counts which are summed over examples before they are divided.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import InputError
from weft.evaluate.classes import class_figures

Figures = Callable[[np.ndarray], dict[str, np.ndarray]]
ROUNDS, LEVEL, SEED = 1000, 0.95, 0
AT_ONCE = 4_000_000  # numbers that are drawn and held at a time, 32 MB


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def mean_interval(values: ArrayLike, *, rounds: int = ROUNDS, level: float = LEVEL, seed: int = SEED) -> Interval:
    """Of the mean of a value per example."""
    values = np.asarray(values, np.float64)
    _check_any(len(values))
    return _middle(_drawn_sums(values[:, None], rounds, seed)[:, 0] / len(values), level)


def sum_intervals(
    counts: np.ndarray, figures: Figures, *, rounds: int = ROUNDS, level: float = LEVEL, seed: int = SEED
) -> dict[str, Interval]:
    """Of figures that follow from sums: `counts` is (examples, …), and `figures` gets (rounds, …)."""
    _check_any(len(counts))
    flat = counts.reshape(len(counts), -1).astype(np.float64)
    sums = _drawn_sums(flat, rounds, seed).reshape(rounds, *counts.shape[1:])
    return {name: _middle(values, level) for name, values in figures(sums).items()}


def confusion_intervals(
    confusion: np.ndarray, *, rounds: int = ROUNDS, level: float = LEVEL, seed: int = SEED
) -> dict[str, Interval]:
    """Of all `class_figures`. How many of the drawn examples fall into each cell is multinomial."""
    total = int(confusion.sum())
    _check_any(total)
    occurs = (confusion.sum(0) + confusion.sum(1)) > 0  # no figure asks for the others, and there may be thousands
    confusion = confusion[np.ix_(occurs, occurs)]
    generator = np.random.default_rng(seed)
    rows, columns = np.nonzero(confusion)
    shares = confusion[rows, columns] / total
    drawn: dict[str, list[np.ndarray]] = {}
    for some in _parts(rounds, confusion.size):
        confusions = np.zeros((some, *confusion.shape))
        confusions[:, rows, columns] = generator.multinomial(total, shares, size=some)
        for name, values in class_figures(confusions).items():
            drawn.setdefault(name, []).append(values)
    return {name: _middle(np.concatenate(values), level) for name, values in drawn.items()}


def example_intervals(
    examples: int,
    figures: Callable[[np.ndarray], dict[str, float]],
    *,
    rounds: int = ROUNDS,
    level: float = LEVEL,
    seed: int = SEED,
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
    most = max(1, AT_ONCE // numbers)
    for start in range(0, rounds, most):
        yield min(most, rounds - start)


def _check_any(examples: int) -> None:
    if examples == 0:
        raise InputError("There are no examples to draw from, so there is no interval.")


def _middle(drawn: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
