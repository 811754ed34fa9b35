"""A histogram for what happens thousands of times a second: one addition counts all tokens of a step."""

from bisect import bisect_left
from collections.abc import Sequence


class WeightedHistogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper bounds of the buckets, ascending; a last one without bound is added."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: (upper bound, how many are not above it)."""
        found, total = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
