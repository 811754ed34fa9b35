"""A batch without padding.

Sequences are concatenated: `tokens` (T,) holds all ids, `positions` (T,) each token's position in its own sequence,
`starts` (S+1,) the offset of each sequence, and T at the end. Only attention and pooling look at the boundaries.
`lengths` holds the same as `starts` in Python integers, so that choosing a kernel does not synchronize with the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor

from weft.model.transfer import moved

TokenIds = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Packed:
    tokens: Tensor
    positions: Tensor
    starts: Tensor
    lengths: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]  # neighbours of equal length, (count, length): one dense attention call each
    segments: Tensor | None = None
    longest: int = field(init=False)  # computed once per batch, not in every layer
    cuda_starts: Tensor = field(init=False)  # int32 for CUDA's variable-length kernel; on CPU `starts` itself

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest", max(self.lengths, default=0))
        object.__setattr__(self, "cuda_starts", self.starts.int() if self.starts.is_cuda else self.starts)

    @cached_property
    def owner(self) -> Tensor:
        """(T,) the number of each token's sequence."""
        with torch.inference_mode(False):  # it may be used in training afterwards
            # Without output_size, this synchronizes with a GPU.
            return torch.repeat_interleave(self.starts.diff(), output_size=len(self.tokens))

    @cached_property
    def padded_rows(self) -> Tensor:
        """(T,) each token's place if all sequences were as long as the longest one."""
        owner = self.owner
        with torch.inference_mode(False):
            inside = torch.arange(len(owner), device=owner.device) - self.first[owner]
            return owner * self.longest + inside

    @property
    def first(self) -> Tensor:
        """(S,) index of each sequence's first token."""
        return self.starts[:-1]

    @property
    def last(self) -> Tensor:
        """(S,) index of each sequence's last token."""
        return self.starts[1:] - 1

    def to(self, device: torch.device | str) -> "Packed":
        return moved(self, torch.device(device))

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Split a tensor with a row per token into one tensor per sequence."""
        return rows.split(self.lengths)


def pack(sequences: Sequence[TokenIds], segments: Sequence[TokenIds] | None = None) -> Packed:
    """Concatenate the sequences in the order given. `segments` (BERT's A = 0, B = 1) has the same lengths."""
    lengths = tuple(len(sequence) for sequence in sequences)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    tokens = _concatenate(sequences)
    positions = np.arange(len(tokens)) - np.repeat(starts[:-1], lengths)
    if segments is not None and tuple(len(row) for row in segments) != lengths:
        raise ValueError("segments and sequences differ in length")
    return Packed(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(positions),
        starts=torch.from_numpy(starts),
        lengths=lengths,
        runs=tuple((len(list(group)), length) for length, group in groupby(lengths)),
        segments=None if segments is None else torch.from_numpy(_concatenate(segments)),
    )


def order_by_length(sequences: Sequence[TokenIds]) -> list[int]:
    """Indices sorted by length, longest first. Equal lengths become neighbours: fewer, larger attention calls."""
    return sorted(range(len(sequences)), key=lambda index: -len(sequences[index]))


def group_by_tokens(lengths: Sequence[int], most_tokens: int) -> list[range]:
    """Consecutive batches of at most `most_tokens` tokens. A longer sequence is a batch of its own."""
    cuts, size = [0], 0
    for index, length in enumerate(lengths):
        if size and size + length > most_tokens:
            cuts.append(index)
            size = 0
        size += length
    return [range(a, b) for a, b in pairwise([*cuts, len(lengths)]) if b > a]


def _concatenate(sequences: Sequence[TokenIds]) -> np.ndarray:
    if len(sequences) == 0:
        return np.zeros(0, np.int64)
    return np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
