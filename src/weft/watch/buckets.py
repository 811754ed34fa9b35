"""Curves thinned for drawing: the mean and the extremes of each bucket, so that a spike of one step stays visible.

Bucket k of width w holds the points with k·w < x ≤ (k + 1)·w. Runs that are drawn over each other use the same width,
and so have their buckets at the same places. A bucket changes only while its last point is the newest, so a look at a
growing run needs only the last few.
"""

import math
from dataclasses import dataclass

import numpy as np

from weft.watch.curves import Floats

MOST_BUCKETS = 5_000
_DIGITS = 6


@dataclass(frozen=True)
class Buckets:
    first: int
    mean: list[float | None]  # None: no point in it
    # The lowest and the highest value of each bucket, in the order they came. None if no bucket has two points.
    ends: list[float | None] | None


def bucket_width(extent: float, points: int, *, whole: bool) -> float:
    """1, 2 or 5 times a power of ten: the least with which `points` buckets reach from 0 to `extent`."""
    if not extent > 0:
        return 1.0
    rough = extent / points
    unit = 10.0 ** math.floor(math.log10(rough))
    width = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * points >= extent * (1 - 1e-12))
    return max(1.0, round(width)) if whole else width


def bucket_of(x: Floats, width: float) -> np.ndarray:
    return np.maximum(np.ceil(x / width - 1e-9).astype(np.int64) - 1, 0)


def bucketed(x: Floats, y: Floats, width: float, first: int, last: int) -> Buckets:
    """The buckets from `first` to `last`; `x` rises. Those after the last point are left out."""
    number = bucket_of(x, width)
    begin, end = np.searchsorted(number, [first, last + 1])
    number, y = number[begin:end], y[begin:end]
    if not len(y):
        return Buckets(first, [], None)
    starts = np.flatnonzero(np.diff(number, prepend=number[0] - 1))
    sizes = np.diff(starts, append=len(y))
    at = number[starts] - first
    mean = _spread(np.add.reduceat(y, starts) / sizes, at)
    if (sizes == 1).all():
        return Buckets(first, mean, None)
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    place, group = np.arange(len(y)), np.repeat(np.arange(len(starts)), sizes)
    low_at = np.minimum.reduceat(np.where(y == low[group], place, len(y)), starts)
    high_at = np.minimum.reduceat(np.where(y == high[group], place, len(y)), starts)
    ends = np.where(low_at <= high_at, [low, high], [high, low]).T
    return Buckets(first, mean, _spread(ends.ravel(), np.stack([2 * at, 2 * at + 1], 1).ravel()))


def _spread(values: Floats, at: np.ndarray) -> list[float | None]:
    """The values at their places, None elsewhere."""
    found: list[float | None] = [None] * (int(at[-1]) + 1)
    for place, value in zip(at.tolist(), rounded_values(values), strict=True):
        found[place] = value
    return found


def rounded_values(values: Floats) -> list[float]:
    """To six digits: a curve needs no more, and every digit is sent."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(values))))
    scale = np.where(np.isfinite(scale) & (scale < 1e300), scale, 1.0)
    found: list[float] = np.where(np.abs(values) < 1e-290, 0.0, np.round(values * scale) / scale).tolist()
    return found
