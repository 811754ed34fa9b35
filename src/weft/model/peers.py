"""What tensor parallel peers say to each other, and which part of each weight a peer has.

Peers compute the same samples. Outside of the parts that are cut, each has the same activations; inside, each has its
own heads, or its own slice of the inner width or of the vocabulary (Shoeybi et al. 2019, section 3).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.model.parts import Part
from weft.splitmix64 import GOLDEN_GAMMA, mix64


class Peers(Protocol):
    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all peers."""

    def max_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by the largest elements of all peers."""

    def collect(self, share: Tensor) -> Tensor:
        """The shares of all peers, which are equally long, end to end."""


@dataclass(frozen=True)
class WeightCut:
    """A weight that is cut along one dimension. It may join several matrices: each of them is cut."""

    dimension: int
    parts: tuple[int, ...]  # lengths of the whole matrices along the dimension

    def ranges(self, peers: Peers, rank: int | None = None) -> tuple[range, ...]:
        """What one peer has of each matrix, in the numbering of the whole weight. Default: this peer."""
        rank, found, begin = peers.rank if rank is None else rank, [], 0
        for length in self.parts:
            found.append(begin_and_end(length, rank, peers.world, begin))
            begin += length
        return tuple(found)

    def part(self, shape: Sequence[int], peers: Peers, rank: int | None = None) -> Part:
        """What one peer has. `shape`: what a peer has, or the whole."""
        ranges: list[tuple[range, ...]] = [(range(length),) for length in shape]
        ranges[self.dimension], whole = self.ranges(peers, rank), list(shape)
        whole[self.dimension] = sum(self.parts)
        return Part(tuple(whole), tuple(ranges))


@dataclass(frozen=True)
class TensorParallel:
    peers: Peers
    cuts: Mapping[str, WeightCut]  # by weight; each peer has the whole of the others
    partial: frozenset[str]  # whole weights that each peer uses for its own heads only: their gradients are added


def begin_and_end(length: int, rank: int, world: int, begin: int = 0) -> range:
    """The share of one peer. Shares differ by at most one."""
    return range(begin + rank * length // world, begin + (rank + 1) * length // world)


def enter(x: Tensor, peers: Peers) -> Tensor:
    """`x`, at the entrance of a part that is cut: the gradients of all peers are added."""
    entered: Tensor = _Enter.apply(x, peers)
    return entered


def sum_over(x: Tensor, peers: Peers) -> Tensor:
    """The sum of all peers' `x`, at the exit of a part that is cut."""
    total: Tensor = _Sum.apply(x, peers)
    return total


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, peers: Peers) -> Tensor:
        ctx.peers = peers
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return _summed(upstream, ctx.peers), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, peers: Peers) -> Tensor:
        return _summed(x, peers)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream, None


def _summed(x: Tensor, peers: Peers) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)  # others may hold `x`
    peers.sum_([total])
    return total


@contextmanager
def own_randomness(peers: Peers, device: torch.device) -> Iterator[None]:
    """Inside, each peer draws its own numbers; after it, all draw the same again. Every number remains a function of
    the seed that was set last.
    """
    shared = int(torch.randint(2**63 - 1, ()))  # on the CPU
    seed = int(mix64(np.array([(shared + peers.rank * GOLDEN_GAMMA) % 2**64], np.uint64))[0]) >> 1
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
