"""Everything behind the loss of a step: backward, gradient norm, clipping, optimizers, and their state on disk.

The loop and the planner's trials use the same engine. The gradients of all pieces are added before the norm is taken,
so each process clips alike and reaches the same weights. Loss and norm are read from the device together, once per
step, and checked before they can touch the weights.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from weft.errors import WeftError
from weft.train.batches import StepPiece
from weft.train.checkpoints import restore_newest, save_checkpoint
from weft.train.gradients import PieceGradients
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.processes import Processes
from weft.train.step import Step


class Diverged(WeftError):
    """The loss is NaN, infinite or has exploded."""


class Engine:
    def __init__(
        self,
        step: Step,
        optimizer: OptimizerSpec,
        *,
        clip: float = 1.0,
        seed: int = 0,
        pieces: int = 1,
        processes: Processes | None = None,
    ) -> None:
        """`clip` is the largest gradient norm; 0 is no limit. `pieces`: of a step, over all processes."""
        self.step, self.clip, self.seed, self.processes = step, clip, seed, processes or Processes()
        self.optimizers = make_optimizers(step.network, optimizer, step.precision)
        self.weights = [weight for weight in step.network.parameters() if weight.requires_grad]
        self.pieces = pieces
        self.gradients = PieceGradients(self.weights, pieces, self.processes) if pieces > 1 else None

    def take_step(self, pieces: Sequence[StepPiece], number: int, rate: float = 1.0) -> tuple[float, float]:
        """Train on this process's pieces of step `number`, counted from 0. Returns the loss and the gradient norm of
        the whole step. `rate` is the share of the peak learning rate.

        Raises Diverged, with the weights unchanged, if one of them is not finite.
        """
        totals = self._totals(pieces)
        losses = torch.zeros(self.pieces, dtype=torch.float64, device=self.step.device)
        for piece in pieces:
            torch.manual_seed(piece_seed(self.seed, number, piece.number))
            for batch in piece.batches:
                loss = self.step(batch.to(self.step.device, non_blocking=True), totals)
                loss.backward()
                losses[piece.number] += loss.detach()
            if self.gradients is not None:
                self.gradients.take(piece.number)
        if self.gradients is not None:
            self.gradients.finish()
            self.processes.sum_([losses])  # exact: each has one summand that is not zero
        norm = get_total_norm([weight.grad for weight in self.weights if weight.grad is not None])
        *found, found_norm = torch.cat([losses, norm.double()[None]]).tolist()
        found_loss = sum(found)
        _check_finite(found_loss, found_norm, number)
        self._update(norm, found_norm, number, rate)
        return found_loss, found_norm

    def _totals(self, pieces: Sequence[StepPiece]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for batch in (batch for piece in pieces for batch in piece.batches):
            counts.update(batch.counts)
        return {kind: int(total) for kind, total in self.processes.add_up(counts).items()}

    def _update(self, norm: Tensor, norm_value: float, number: int, rate: float) -> None:
        if 0 < self.clip < norm_value:  # clipping is a pass over all gradients, and often not needed
            clip_grads_with_norm_(self.weights, self.clip, norm)
        set_rate(self.optimizers, rate, number)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def save(self, folder: Path, number: int, *, keep: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, in the first process only."""
        if self.processes.is_first:
            save_checkpoint(folder, number, self.step.network, self.optimizers, keep=keep, state=state)
        self.processes.barrier()

    def restore_newest(self, folder: Path) -> dict[str, Any] | None:
        """Load the newest intact checkpoint. Returns its state, or None if there is none."""
        return restore_newest(folder, self.step.network, self.optimizers)


def piece_seed(seed: int, step: int, piece: int) -> int:
    """The seed of dropout: different in every step and every piece."""
    key = [seed, step, piece] if piece else [seed, step]
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def _check_finite(loss: float, norm: float, number: int) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"At step {number + 1:,} the loss is {loss} and the gradient norm {norm}: training has diverged. This step "
            "was not taken, and the last checkpoint is intact. Try a lower learning rate, a longer warm-up or stronger "
            "clipping."
        )
