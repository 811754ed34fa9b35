"""Everything behind the loss of a step: backward, gradient norm, clipping, optimizers, and their state on disk.

The loop and the planner's trials use the same engine. The gradients of all pieces are added before the norm is taken,
so each process clips alike and reaches the same weights. Loss and norm are read from the device together, once per
step, and checked before they can touch the weights.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from weft.devices import widest_float
from weft.errors import WeftError
from weft.objectives.objective import Batch
from weft.train.batches import StepPiece
from weft.train.checkpoints import restore_newest, training_files
from weft.train.exact_update import clip_gradients, exact_norm
from weft.train.fresh_parts import fill_network
from weft.train.gradients import PieceGradients
from weft.train.local import whole_of
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.peer_gradients import PeerGradients
from weft.train.processes import Processes
from weft.train.repeatable import repeatable_kernels
from weft.train.step import Step
from weft.train.stored_parts import OwnFile
from weft.train.summed_gradients import SummedGradients

if TYPE_CHECKING:
    from weft.train.sharding import PieceRound


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
        self.data, self.peers = self.processes.data, None
        self.pieces, self.round = pieces, None
        if self.processes.is_sharded:
            from weft.train.sharding import shard_network  # takes a second

            self.round = shard_network(step.network, pieces, self.data, seed)
        if self.processes.tensor.world > 1:
            fill_network(step.network, seed, self.processes.device)
            self.peers = PeerGradients(step.network, self.processes)
        self.is_exact = pieces > 1 and self.processes.is_exact
        self.optimizers = make_optimizers(step.network, optimizer, step.precision, exact=self.is_exact)
        self.weights = [weight for weight in step.network.parameters() if weight.requires_grad]
        has_pieces = self.is_exact and self.round is None
        self.gradients = PieceGradients(self.weights, pieces, self.data) if has_pieces else None
        is_summed = not self.processes.is_exact and self.round is None
        self.summed = SummedGradients(self.weights, self.data) if is_summed else None

    def take_step(self, pieces: Sequence[StepPiece], number: int, rate: float = 1.0) -> tuple[float, float]:
        """Train on this process's pieces of step `number`, counted from 0. Returns the loss and the gradient norm of
        the whole step. `rate` is the share of the peak learning rate.

        Raises Diverged, with the weights unchanged, if one of them is not finite.
        """
        with repeatable_kernels(self.step.device):
            return self._take_step(pieces, number, rate)

    def _take_step(self, pieces: Sequence[StepPiece], number: int, rate: float) -> tuple[float, float]:
        totals = self._totals(pieces)
        losses = torch.zeros(self.pieces, dtype=widest_float(self.step.device), device=self.step.device)
        if self.round is not None:
            self._backward_in_rounds(self.round, pieces, number, totals, losses)
        else:
            for piece in pieces:
                torch.manual_seed(piece_seed(self.seed, number, piece.number))
                for place, batch in enumerate(piece.batches, 1):
                    if self.summed is not None and place == len(piece.batches):
                        self.summed.begin()
                    self._backward(batch, totals, losses[piece.number])
                if self.gradients is not None:
                    self.gradients.take(piece.number)
            if (shared := self.gradients or self.summed) is not None:
                shared.finish()
        if self.data.world > 1:
            self.data.sum_([losses])  # exact: each has one summand that is not zero
        found = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = self._norm(found)
        *each, found_norm = torch.cat([losses, norm.to(losses.dtype)[None]]).tolist()
        loss = sum(each)
        check_finite(loss, found_norm, number)
        self._update(found, norm, found_norm, number, rate)
        return loss, found_norm

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        if self.peers is not None:
            return self.peers.whole_norm()
        return exact_norm(gradients, self.processes) if self.is_exact else whole_of(get_total_norm(gradients))

    def _backward(self, batch: Batch, totals: Mapping[str, int], losses: Tensor, factor: float | None = None) -> None:
        loss = self.step(batch.to(self.step.device, non_blocking=True), totals)
        if factor is not None:
            loss = loss * factor
        loss.backward()
        losses += loss.detach()

    def _backward_in_rounds(
        self, turn: "PieceRound", pieces: Sequence[StepPiece], number: int, totals: Mapping[str, int], losses: Tensor
    ) -> None:
        """With sharded weights: in each round every process computes a piece, and equally many batches."""
        own = {piece.number: piece.batches for piece in pieces}
        spare = pieces[0].batches[0]
        counts = self.data.gather([len(piece.batches) for piece in pieces])
        network: Any = self.step.network
        for round_number in range(turn.count):
            turn.number = round_number
            piece = turn.piece_of(self.data.rank)
            most = max(each[round_number] for each in counts if round_number < len(each))
            batches = own[piece] if piece is not None else []
            for place in range(most):
                network.set_requires_gradient_sync(place == most - 1)
                index = place - (most - len(batches))
                if index < 0 or piece is None:
                    self._backward(spare, totals, torch.zeros_like(losses[0]), 0.0)
                    continue
                if index == 0:
                    torch.manual_seed(piece_seed(self.seed, number, piece))
                self._backward(batches[index], totals, losses[piece])
            if not turn.is_last:
                for weight in self.weights:
                    weight.grad = None

    def _totals(self, pieces: Sequence[StepPiece]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for batch in (batch for piece in pieces for batch in piece.batches):
            counts.update(batch.counts)
        return {kind: int(total) for kind, total in self.data.add_up(counts).items()}

    def _update(self, gradients: list[Tensor], norm: Tensor, norm_value: float, number: int, rate: float) -> None:
        if 0 < self.clip < norm_value:  # clipping is a pass over all gradients, and often not needed
            if self.is_exact:
                clip_gradients(gradients, self.clip, norm_value)
            else:
                clip_grads_with_norm_(self.weights, self.clip, norm)
        set_rate(self.optimizers, rate, number)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def checkpoint_files(self) -> list[OwnFile]:
        """What this process has to write. Every process must ask. The tensors are those of training, not copies."""
        return training_files(self.step.network, self.optimizers, self.processes)

    def restore_newest(self, folder: Path) -> dict[str, Any] | None:
        """Load the newest intact checkpoint. Returns its state, or None if there is none."""
        return restore_newest(folder, self.step.network, self.optimizers, self.processes)

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Within the block the network that was given may be used for other things than training."""
        yield

    def finish(self) -> None:
        """After the last step. The network that was given keeps the weights."""


def piece_seed(seed: int, step: int, piece: int) -> int:
    """The seed of dropout: different in every step and every piece."""
    key = [seed, step, piece] if piece else [seed, step]
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def check_finite(loss: float, norm: float, number: int) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"At step {number + 1:,} the loss is {loss} and the gradient norm {norm}: training has diverged. This step "
            "was not taken, and the last checkpoint is intact. Try a lower learning rate, a longer warm-up or stronger "
            "clipping."
        )
