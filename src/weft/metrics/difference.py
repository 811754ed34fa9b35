"""The paired bootstrap: is one model better than another on the same examples?

Each round draws the same examples for both (all intervals use the same seed), and the middle 95 % of the differences is
the interval (Koehn 2004; Berg-Kirkpatrick et al. 2012). Pairing removes the variance from examples that are hard for
both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.metrics.bootstrap import CONFIDENCE_LEVEL
from weft.metrics.judged import Judged
from weft.metrics.rounding import gap_text, rounded, signed

LOWER_IS_BETTER = {"perplexity", "bits_per_byte", "rmse", "mae", "hamming", "loss"}


@dataclass(frozen=True)
class PairedDifference:
    """Our metric minus theirs, with its interval."""

    figure: str
    value: float
    low: float
    high: float

    @property
    def is_ahead(self) -> bool:
        return (self.high < 0) if self.figure in LOWER_IS_BETTER else (self.low > 0)

    @property
    def is_behind(self) -> bool:
        return (self.low > 0) if self.figure in LOWER_IS_BETTER else (self.high < 0)

    @property
    def verdict(self) -> str:
        """better by 0.031 (0.012 … 0.050)"""
        return self.verdict_against()

    def verdict_against(self, other: str = "") -> str:
        """better than TF-IDF by 0.031 (0.012 … 0.050)"""
        if self.is_ahead or self.is_behind:
            word, than = "better" if self.is_ahead else "worse", f" than {other}" if other else ""
            ends = gap_text(self.figure, sorted((abs(self.low), abs(self.high))))
            return f"{word}{than} by {rounded(self.figure, abs(self.value))} ({ends})"
        size, ends = signed(self.figure, self.value), gap_text(self.figure, (self.low, self.high))
        return f"no clear difference{f' from {other}' if other else ''}: {size} ({ends})"

    def facts(self) -> dict[str, Any]:
        return {
            "figure": self.figure, "value": self.value, "low": self.low, "high": self.high, "verdict": self.verdict,
        }  # fmt: skip


def paired_difference(
    figure: str, ours: Judged, theirs: Judged, level: float = CONFIDENCE_LEVEL
) -> PairedDifference | None:
    """The difference in one metric; None if either has no interval for it."""
    drawn = [judged.intervals[figure].drawn for judged in (ours, theirs) if figure in judged.intervals]
    if len(drawn) < 2 or drawn[0] is None or drawn[1] is None or figure not in theirs.figures:
        return None
    low, high = np.quantile(drawn[0] - drawn[1], [(1 - level) / 2, (1 + level) / 2])
    return PairedDifference(figure, ours.figures[figure] - theirs.figures[figure], float(low), float(high))
