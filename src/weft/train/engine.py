"""Everything behind the loss of a step: backward, gradient norm, clipping, optimizers, and their state on disk.

The loop and the planner's trials use the same engine. The gradients of all processes are added before the norm is
taken, so each process clips alike and reaches the same weights. Loss and norm are read from the device together, once
per step, and checked before they can touch the weights.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from weft.errors import WeftError
from weft.objectives.objective import Batch
from weft.train.checkpoints import restore_newest, save_checkpoint
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
        processes: Processes | None = None,
    ) -> None:
        """`clip` is the largest gradient norm; 0 is no limit."""
        self.step, self.clip, self.seed, self.processes = step, clip, seed, processes or Processes()
        self.optimizers = make_optimizers(step.network, optimizer, step.precision)

    def take_step(self, batches: Sequence[Batch], number: int, rate: float = 1.0) -> tuple[float, float]:
        """Train on this process's batches of step `number`, counted from 0. Returns the loss and the gradient norm of
        the whole step. `rate` is the share of the peak learning rate.

        Raises Diverged, with the weights unchanged, if one of them is not finite.
        """
        torch.manual_seed(self.processes.step_seed(self.seed, number))
        totals = self._totals(batches)
        total_loss = torch.zeros((), dtype=torch.float64, device=self.step.device)
        for batch in batches:
            loss = self.step(batch.to(self.step.device, non_blocking=True), totals)
            loss.backward()
            total_loss += loss.detach()
        gradients = [weight.grad for weight in self.step.network.parameters() if weight.grad is not None]
        self.processes.sum_([*gradients, total_loss])
        norm = get_total_norm(gradients)
        found_loss, found_norm = torch.stack([total_loss, norm.double()]).tolist()
        _check_finite(found_loss, found_norm, number)
        self._update(norm, found_norm, number, rate)
        return found_loss, found_norm

    def _totals(self, batches: Sequence[Batch]) -> dict[str, int]:
        counts = {kind: sum(batch.counts[kind] for batch in batches) for kind in batches[0].counts}
        return {kind: int(total) for kind, total in self.processes.add_up(counts).items()}

    def _update(self, norm: Tensor, norm_value: float, number: int, rate: float) -> None:
        if 0 < self.clip < norm_value:  # clipping is a pass over all gradients, and often not needed
            clip_grads_with_norm_(self.step.network.parameters(), self.clip, norm)
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


def _check_finite(loss: float, norm: float, number: int) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"At step {number + 1:,} the loss is {loss} and the gradient norm {norm}: training has diverged. This step "
            "was not taken, and the last checkpoint is intact. Try a lower learning rate, a longer warm-up or stronger "
            "clipping."
        )
