"""Causal language modelling: predict each token from those before it, −Σ log p(x_t | x_<t)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from weft.model.packed import pack
from weft.objectives.objective import Batch, HeadObjective
from weft.tokens.shards import TokenShards


@dataclass(frozen=True)
class Causal(HeadObjective):
    """Sample i is `length` consecutive tokens; the targets are shifted by one.

    The first `seen` tokens of a sample repeat the last of the sample before. They are context and are not scored again.
    """

    shards: TokenShards
    length: int
    seen: int = 0
    head: ClassVar[str] = "causal"

    def __len__(self) -> int:
        return max(0, (len(self.shards) - 1 - self.seen) // (self.length - self.seen))

    def with_context(self) -> "Causal":
        """The same with a quarter of each sample as context. Without context the first tokens of a sample are predicted
        worse than the model can, and the shorter the samples, the more that weighs.
        """
        return replace(self, seen=self.length // 4)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        stride = self.length - self.seen
        rows = [self.shards[sample * stride : sample * stride + self.length + 1] for sample in samples]
        packed = pack([row[:-1] for row in rows])
        targets = torch.from_numpy(np.concatenate([row[1:] for row in rows]))
        if not self.seen:
            return Batch(packed, targets, counts={"causal": len(targets)})
        starts = np.arange(len(samples)) * self.length
        scored = [
            start + np.arange(self.seen if sample else 0, self.length)
            for start, sample in zip(starts, samples, strict=True)
        ]
        rows_scored = torch.from_numpy(np.concatenate(scored))
        return Batch(packed, targets[rows_scored], rows_scored, counts={"causal": len(rows_scored)})
