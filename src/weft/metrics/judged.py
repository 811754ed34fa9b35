"""The result of evaluating answers, for any task: metrics with intervals, a score per example, and detail tables."""

from dataclasses import dataclass, field

import numpy as np

from weft.metrics.bootstrap import Interval
from weft.metrics.calibration import Calibration


@dataclass(frozen=True)
class DetailTable:
    title: str
    headings: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Judged:
    figures: dict[str, float]
    intervals: dict[str, Interval]
    credit: np.ndarray  # per example, from 0 (wrong) to 1 (right)
    severity: np.ndarray  # per example: how bad the mistake is; the report shows the worst first
    tables: list[DetailTable] = field(default_factory=list)
    calibration: Calibration | None = None
