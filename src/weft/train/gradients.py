"""The gradients of a step's pieces, added along a fixed tree.

Floating-point sums depend on their order. Here the order is that of a binary tree over the pieces of a step: first
pieces 0 and 1, 2 and 3, …, then the sums of two and two. The tree does not depend on who computes a piece, so any
number of processes reaches the same bits.

A process has neighbouring pieces, and adds up those that are a whole branch of the tree. What is left, one branch per
process if they have equally many pieces (a power of two), is exchanged: each process receives its share of the numbers
of every branch, adds them, and sends the sums to all. That moves as many bytes as a ring all-reduce.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft.train.processes import Processes

_ALIGNMENT = 16  # numbers. The rounding of a kernel can depend on the alignment of its input


@dataclass
class Branch:
    """The sum of the pieces `first` to `first + size - 1`."""

    first: int
    size: int
    tensors: list[Tensor]


class TreeSum:
    """Branches that come in the order of their pieces."""

    def __init__(self) -> None:
        self.branches: list[Branch] = []

    @torch.no_grad()
    def add(self, branch: Branch) -> None:
        """`branch` becomes ours: its tensors may change."""
        self.branches.append(branch)
        while len(self.branches) > 1 and _are_halves(*self.branches[-2:]):
            right = self.branches.pop()
            left = self.branches[-1]
            _add(left, right)

    @torch.no_grad()
    def total(self) -> list[Tensor]:
        """The sum of all, if the pieces are complete. Where their number is no power of two, from right to left."""
        *others, last = self.branches
        for branch in reversed(others):
            _add(branch, last)
            last = branch
        self.branches = []
        return last.tensors


def _add(left: Branch, right: Branch) -> None:
    if left.tensors:
        torch._foreach_add_(left.tensors, right.tensors)
    left.size += right.size


def _are_halves(left: Branch, right: Branch) -> bool:
    return left.size == right.size and left.first % (2 * left.size) == 0


def branches_of(pieces: Iterable[int]) -> list[tuple[int, int]]:
    """First piece and size of the branches that neighbouring pieces add up to."""
    tree = TreeSum()
    for number in pieces:
        tree.add(Branch(number, 1, []))
    return [(branch.first, branch.size) for branch in tree.branches]


class PieceGradients:
    """`take` after the backward pass of each own piece, `finish` after the last one."""

    def __init__(self, weights: Sequence[nn.Parameter], pieces: int, processes: Processes) -> None:
        self.weights, self.pieces, self.processes = list(weights), pieces, processes
        self.tree = TreeSum()
        self.seen = [False] * len(self.weights)  # whether any piece of this process has a gradient

    def take(self, piece: int) -> None:
        """Move the gradients of the weights out of the way of the next piece."""
        found = [weight.grad for weight in self.weights]
        self.seen = [seen or grad is not None for seen, grad in zip(self.seen, found, strict=True)]
        # No gradient counts as zeros, always: adding them can change the sign of a zero.
        filled = [
            torch.zeros_like(weight) if grad is None else grad.contiguous()
            for weight, grad in zip(self.weights, found, strict=True)
        ]
        self.tree.add(Branch(piece, 1, filled))
        for weight in self.weights:
            weight.grad = None

    def finish(self) -> None:
        """Give every weight the sum of its gradients. A weight that no piece used has none."""
        seen = self.processes.gather(self.seen)
        sums = self._exchanged() if self.processes.world > 1 else self.tree.total()
        for weight, total, *flags in zip(self.weights, sums, *seen, strict=True):
            weight.grad = total if any(flags) else None
        self.seen = [False] * len(self.weights)

    @torch.no_grad()
    def _exchanged(self) -> list[Tensor]:
        processes, places = self.processes, _places(self.weights)
        share = -(-places[-1] // processes.world)
        share += -share % _ALIGNMENT
        device, dtype = self.weights[0].device, self.weights[0].dtype
        rows = torch.zeros(len(self.tree.branches), processes.world, share, device=device, dtype=dtype)
        for row, branch in zip(rows.flatten(1), self.tree.branches, strict=True):
            torch._foreach_copy_(_views(row, self.weights, places), branch.tensors)
        self.tree = TreeSum()
        ranges = [processes.own_pieces(self.pieces, rank) for rank in range(processes.world)]
        spans = [branches_of(numbers) for numbers in ranges]
        received = processes.swap(list(rows.unbind(1)), [len(span) for span in spans])
        sums = TreeSum()
        for span, part in zip(spans, received, strict=True):
            for (first, size), numbers in zip(span, part, strict=True):
                sums.add(Branch(first, size, [numbers]))
        whole = processes.collect(sums.total()[0])
        return _views(whole, self.weights, places)


def _places(weights: Sequence[Tensor]) -> list[int]:
    """Where each weight begins in one long row of all, and where the last one ends."""
    found = [0]
    for weight in weights:
        found.append(found[-1] + weight.numel() + -weight.numel() % _ALIGNMENT)
    return found


def _views(row: Tensor, weights: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    return [
        row[place : place + weight.numel()].view_as(weight) for weight, place in zip(weights, places[:-1], strict=True)
    ]
