"""The settings of the training loop."""

from dataclasses import dataclass, field

import torch

from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule


@dataclass(frozen=True)
class TrainSpec:
    steps: int
    samples: int  # per step, over all processes
    schedule: Schedule
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    seed: int = 0
    pieces: int = 1  # that a step is cut into. The result depends on it, not on the number of processes
    accumulation: int = 1  # parts that each piece is cut into, to save memory
    clip: float = 1.0  # largest gradient norm
    precision: torch.dtype = torch.float32  # of matrix products; weights are always fp32
    log_every: int = 10
    validate_every: int = 200
    checkpoint_every: int = 500
    keep: int = 2  # checkpoints
    patience: int | None = None  # validations without a new best before the run stops early
