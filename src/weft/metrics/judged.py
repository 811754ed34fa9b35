"""What a judgement of answers holds, whatever the task: figures with their intervals, what each example did, and
tables to look into.
"""

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
    credit: np.ndarray  # of each example, 0 to 1: how right its answer is
    severity: np.ndarray  # of each example: how bad a mistake it is; the hardest mistakes have most
    tables: list[DetailTable] = field(default_factory=list)
    calibration: Calibration | None = None
