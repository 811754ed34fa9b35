"""The learning rate as a function of the step, so that there is no state to save.

All schedules warm up linearly (Vaswani et al. 2017, section 5.3). Then
    cosine   half a cosine wave down to `floor` (Loshchilov & Hutter 2017)
    linear   a straight line down to `floor` (BERT)
    wsd      stable, then a straight line down over the last `decay` of the run (Hu et al. 2024)
"""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Schedule:
    steps: int
    kind: Literal["cosine", "linear", "wsd"] = "cosine"
    warmup: int = 0  # steps
    decay: float = 0.5  # share of the run; wsd only
    floor: float = 0.0  # share of the peak rate at the end

    @property
    def decay_begins(self) -> int:
        """The first step whose rate may be below the peak."""
        stable = self.steps - round(self.steps * self.decay) if self.kind == "wsd" else 0
        return max(self.warmup, stable)

    def __call__(self, step: int) -> float:
        """The share of the peak rate at `step`, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        begin = self.decay_begins
        if step < begin:
            return 1.0
        done = min((step - begin) / max(self.steps - begin, 1), 1.0)
        left = (1 + math.cos(math.pi * done)) / 2 if self.kind == "cosine" else 1 - done
        return self.floor + (1 - self.floor) * left
