"""Fully sharded training (FSDP2): each process keeps a part of every weight, its gradient and its optimizer state.

A block's weights are gathered before it computes, forward and backward, and let go after it. Its gradients are cut into
the processes' parts right away. Here they are not simply added up: each process receives its part of every piece's
gradient and adds the pieces along the same tree as `PieceGradients`. So the sums have the same bits as without
sharding, on any number of processes.

Each round, every process computes one piece. Where there is nothing left to compute, it computes a batch again and
multiplies its loss by zero: all processes must gather and send equally often.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.tensor import DeviceMesh

from weft.model.network import Network
from weft.train.fresh_parts import fill_modules
from weft.train.gradients import Branch, TreeSum
from weft.train.processes import Processes


class PieceRound:
    """Which pieces are being computed, one per process."""

    def __init__(self, pieces: int, processes: Processes) -> None:
        self.pieces, self.processes, self.number = pieces, processes, 0
        # What waits for the gradients that are on their way, while the block below computes. Of one block at most:
        # its gradients are whole until they have arrived.
        self.arrival: Callable[[], None] | None = None

    def wait(self) -> None:
        if self.arrival is not None:
            self.arrival()
        self.arrival = None

    @property
    def count(self) -> int:
        """Rounds of a step."""
        return -(-self.pieces // self.processes.world)

    @property
    def is_last(self) -> bool:
        return self.number == self.count - 1

    def piece_of(self, rank: int) -> int | None:
        piece = self.number * self.processes.world + rank
        return piece if piece < self.pieces else None


class TreeReduceScatter(ReduceScatter):
    """The gradients of one group of weights: takes those of a round, and gives the sum in the last round."""

    def __init__(self, turn: PieceRound) -> None:
        self.turn, self.tree = turn, TreeSum()

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        self.turn.wait()
        received = torch.empty_like(input_tensor)
        sent = dist.all_to_all_single(received, input_tensor, group=group, async_op=True)
        numbers = [self.turn.piece_of(rank) for rank in range(self.turn.processes.world)]
        self.turn.arrival = partial(self._add, sent, input_tensor, received, output_tensor, numbers)
        if self.turn.is_last:
            self.turn.wait()
            output_tensor.copy_(self.tree.total()[0])

    def _add(self, sent: dist.Work, _: Tensor, received: Tensor, output: Tensor, numbers: Sequence[int | None]) -> None:
        """The sums are kept in memory of their own: a part of `received` would keep all of it. `output` has room for
        one of them: nothing reads it before the last round.
        """
        sent.wait()
        tree = TreeSum()
        for piece, part in zip(numbers, received.chunk(len(numbers)), strict=True):
            if piece is not None:
                tree.add(Branch(piece, 1, [part]))
        *others, last = tree.branches
        for branch in others:
            self.tree.add(Branch(branch.first, branch.size, [branch.tensors[0].clone()]))
        self.tree.add(Branch(last.first, last.size, [output.copy_(last.tensors[0])]))


def shard_network(network: Network, pieces: int, processes: Processes, seed: int) -> PieceRound:
    """Cut the weights into the processes' parts, in place. Returns the round, which the training step sets. Tensor
    parallel peers have a network cut already, of which each shares its part with the processes of its column.

    Weights that are only an outline yet (on the meta device) are drawn here, block by block, so that no process ever
    holds all of them.
    """
    turn = PieceRound(pieces, processes)
    assert dist.group.WORLD is not None
    group = getattr(processes, "group", None) or dist.group.WORLD
    mesh = DeviceMesh.from_group(group, torch.device(processes.device).type)
    for module in fill_modules(network, seed, processes.device):
        fully_shard(module, mesh=mesh)
    for part in network.modules():
        if isinstance(part, FSDPModule):
            if processes.is_exact:
                part.set_custom_reduce_scatter(TreeReduceScatter(turn))
            part.set_gradient_divide_factor(1.0)  # losses are divided by the step's counts
            part.set_force_sum_reduction_for_comms(True)
    network.set_reduce_scatter_unused_params(True)  # type: ignore[operator]
    return turn
