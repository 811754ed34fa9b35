"""Causal language modelling: guess each token from those before it, −Σ log p(x_t | x_<t)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from weft.model.packed import pack
from weft.objectives.objective import Batch
from weft.tokens.shards import TokenShards


@dataclass(frozen=True)
class Causal:
    """Sample i is the tape from i · length on, one token further for the targets; nothing is wasted."""

    shards: TokenShards
    length: int
    head: ClassVar[str] = "causal"

    def __len__(self) -> int:
        return max(0, (len(self.shards) - 1) // self.length)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        rows = [self.shards[sample * self.length : (sample + 1) * self.length + 1] for sample in samples]
        packed = pack([row[:-1] for row in rows])
        targets = torch.from_numpy(np.concatenate([row[1:] for row in rows]))
        return Batch(packed, targets, counts={"causal": len(targets)})
