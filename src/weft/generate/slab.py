"""Keys and values in memory, stored for one more token per step.

Sequences of unequal length share a slab, aligned at their ends:

    column      0    first                end      capacity
    sequence a         a₀  a₁  a₂  a₃  a₄ │ next
    sequence b                 b₀  b₁  b₂ │ next

So every sequence's next token goes into the same column (a step writes one slice), and a distance is the same column
for all, as relative positions and local windows need it. Only attention looks at where each sequence begins: the C
kernels start there, torch's attention gets a constant mask. Sequences of very different lengths go into several slabs,
so that a short one does not take the width of a long one. Slabs grow by blocks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.compiled import threads
from weft.generate.kernels import GenerationKernels, load_generation_kernels
from weft.generate.layer_kernel import LayerKernel
from weft.model.attention import View

_BLOCK = 64  # columns that a slab grows by at least
_SLACK, _SHARE = 64, 1.25  # a slab's longest sequence has at most _SHARE · shortest + _SLACK tokens;
_KERNEL_SLACK, _KERNEL_SHARE = 256, 4.0  # more with the kernels, where a short one costs only memory


class LayerShape(NamedTuple):
    """Layers that have the same key heads."""

    layers: int
    heads: int
    head_width: int


class Slab:
    """Keys and values of neighbouring sequences in all layers of one shape: (layers, 2, R, H, C, D)."""

    def __init__(self, shape: LayerShape, lengths: Sequence[int], room: int, like: Tensor) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.end = int(self.lengths.max())
        self.kernels = _kernels_for(like)
        sizes = (shape.layers, 2, len(lengths), shape.heads, self.end + room, shape.head_width)
        self.store = like.new_zeros(sizes)  # masked values are multiplied too, so they must not be NaN
        self._mark()

    def _mark(self) -> None:
        """Where sequences begin; called after rows were added or removed."""
        self.rows = len(self.lengths)
        self.first = self.end - int(self.lengths.max())
        self.mask = None
        self.begins = torch.as_tensor(self.end - self.lengths, device=self.store.device)
        self.work: Tensor | None = None
        self.is_ragged = bool((self.lengths != self.lengths[0]).any())
        if self.is_ragged and self.kernels is None:
            columns = torch.arange(self.store.shape[4], device=self.store.device)
            hidden = columns[None, :] < self.begins[:, None]
            self.mask = torch.where(hidden, -torch.inf, 0.0).to(self.store.dtype)[:, None, None, :]
        if self.kernels is not None:
            layers, _, rows, heads, capacity, width = self.store.shape
            start, size = self.store.data_ptr(), 4 * rows * heads * capacity * width
            self.addresses = [(start + 2 * layer * size, start + (2 * layer + 1) * size) for layer in range(layers)]
            self.scores = self.store.new_empty(rows * heads, capacity)
        self._look()

    def fill(self, layer: int, k_THD: Tensor, v_THD: Tensor) -> None:
        """Store the keys and values of whole sequences, concatenated."""
        lengths = self.lengths.tolist()
        for which, flat in enumerate((k_THD, v_THD)):
            store = self.store[layer, which]
            if not self.is_ragged:
                length = lengths[0]
                store[:, :, self.first : self.end] = flat.unflatten(0, (-1, length)).transpose(1, 2)
                continue
            for row, part in enumerate(flat.split(lengths)):
                store[row, :, self.end - len(part) : self.end] = part.transpose(0, 1)

    def open_column(self) -> None:
        """Room for one more token of each sequence."""
        if self.end == self.store.shape[4]:
            # Columns before the first visible one are dropped.
            width = self.end - self.first
            shape = [*self.store.shape[:4], width + max(_BLOCK, width // 2), self.store.shape[5]]
            store = self.store.new_empty(shape)
            store[..., :width, :] = self.store[..., self.first : self.end, :]
            self.store, self.end = store, width
            self._mark()
        self.lengths = self.lengths + 1
        self.end += 1
        self._look()

    def _look(self) -> None:
        """Views of each layer for a step: the newest column, and all visible columns."""
        if self.kernels is not None:
            return
        self.new_keys, self.new_values = self._layers(self.store[..., self.end - 1, :])
        self.keys, self.values = self._layers(self.store[..., self.first : self.end, :])
        self.seen_mask = None if self.mask is None else self.mask[..., self.first : self.end]

    @staticmethod
    def _layers(part: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Keys and values of each layer."""
        both = part.flatten(0, 1).unbind(0)
        return both[::2], both[1::2]

    def keep(self, rows: np.ndarray) -> None:
        """Keep these rows, in this order. A row may occur several times."""
        index = torch.as_tensor(rows, device=self.store.device)
        self.store, self.lengths = self.store.index_select(2, index), self.lengths[rows]
        self._mark()

    def reorder(self, parents: np.ndarray, depth: int) -> None:
        """Row r continues row parents[r]. Only their last `depth` tokens differ."""
        moved = np.flatnonzero(parents != np.arange(len(parents)))
        if depth == 0 or moved.size == 0:
            return
        columns = self.store[..., self.end - depth : self.end, :]
        to, source = (torch.as_tensor(rows, device=self.store.device) for rows in (moved, parents[moved]))
        columns.index_copy_(2, to, columns.index_select(2, source))

    def attend(
        self,
        layer: int,
        q_RHD: Tensor,
        new: tuple[Tensor, Tensor] | None,
        scale: float,
        window: int | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attention of queries (several per row, concatenated) over their row. The `new` keys and values are stored in
        the last column first. `bias` (H, visible columns) is added to the scores.
        """
        if self.kernels is not None:
            return self._attend_by_kernel(layer, q_RHD, new, scale, window, bias)
        if new is not None:
            self.new_keys[layer].copy_(new[0])
            self.new_values[layer].copy_(new[1])
        return self._attend_by_torch(layer, q_RHD, scale, window, bias)

    def _attend_by_kernel(
        self,
        layer: int,
        q_RHD: Tensor,
        new: tuple[Tensor, Tensor] | None,
        scale: float,
        window: int | None,
        bias: Tensor | None,
    ) -> Tensor:
        """Reads only the columns that a row can see, so there is no mask."""
        queries, heads, width = q_RHD.shape
        out = q_RHD.new_empty(q_RHD.shape)
        k, v = (None, None) if new is None else new
        self.kernels.attend(
            *_pointer(q_RHD), *_pointer(k), *_pointer(v), *self.addresses[layer], self.begins.data_ptr(),
            *_pointer(bias), self.scores.data_ptr(), out.data_ptr(),
            self.rows, queries // self.rows, heads, self.store.shape[3], width, self.store.shape[4],
            self.first, self._low(window), self.end, scale, threads(),
        )  # fmt: skip
        return out

    def run(self, layer: int, whole: LayerKernel, x_RW: Tensor, view: View, start: int, bias: Tensor | None) -> None:
        """`view`: of the whole batch. The slab's rows begin at `start`."""
        if self.work is None or len(self.work) < self.rows * whole.work_per_row:  # layers may differ
            self.work = x_RW.new_empty(self.rows * whole.work_per_row)
        cos, sin = (None, None) if view.rotary is None else (part[start:].data_ptr() for part in view.rotary)
        whole.kernel(
            whole.address, x_RW.data_ptr(), self.work.data_ptr(), cos, sin, *self.addresses[layer],
            self.begins.data_ptr(), *_pointer(bias), self.scores.data_ptr(), self.rows, self.store.shape[4], self.first,
            self._low(view.window), self.end, threads(),
        )  # fmt: skip

    def _low(self, window: int | None) -> int:
        """The first visible column."""
        return self.first if window is None else max(self.first, self.end - window - 1)

    def _attend_by_torch(
        self, layer: int, q_RHD: Tensor, scale: float, window: int | None, bias: Tensor | None
    ) -> Tensor:
        keys, values, mask = self.keys[layer], self.values[layer], self.seen_mask
        if window is not None and self.end - self.first > window + 1:
            keys, values = keys[:, :, -window - 1 :], values[:, :, -window - 1 :]
            mask = None if mask is None else mask[..., -window - 1 :]
            bias = None if bias is None else bias[:, -window - 1 :]
        rows, heads, columns, width = keys.shape
        # Query heads that share a key head, and queries that share a row, form one small matrix.
        per_head, per_row = q_RHD.shape[1] // heads, q_RHD.shape[0] // rows
        q = q_RHD.reshape(rows, per_row, heads, per_head, width)
        q = q.transpose(1, 2).flatten(2, 3) if per_row > 1 else q.squeeze(1)
        if bias is not None:
            bias = bias.view(1, heads, per_head, columns)
            mask = bias if mask is None else mask + bias
        if mask is not None:
            mask = mask.expand(rows, heads, per_head * per_row, columns)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
        if per_row > 1:
            mixed = mixed.unflatten(2, (per_row, per_head)).transpose(1, 2)
        return mixed.reshape(q_RHD.shape)


class SlabGroups:
    """The slabs of a whole batch, in its order."""

    def __init__(self, shape: LayerShape, lengths: Sequence[int], room: int, like: Tensor) -> None:
        cuts = _cuts(lengths, _kernels_for(like) is not None)
        self.slabs = [Slab(shape, lengths[a:b], room, like) for a, b in pairwise(cuts)]

    def fill(self, layer: int, k_THD: Tensor, v_THD: Tensor) -> None:
        sizes = [int(slab.lengths.sum()) for slab in self.slabs]
        for slab, k, v in zip(self.slabs, k_THD.split(sizes), v_THD.split(sizes), strict=True):
            slab.fill(layer, k, v)

    def keep(self, rows: np.ndarray) -> None:
        """As `Slab.keep`. Rows must be in ascending order, so that each stays in its slab."""
        start, kept = 0, []
        for slab in self.slabs:
            mine = rows[(rows >= start) & (rows < start + slab.rows)] - start
            start += slab.rows
            if mine.size:
                if mine.size != slab.rows or (mine != np.arange(slab.rows)).any():
                    slab.keep(mine)
                kept.append(slab)
        self.slabs = kept

    def reorder(self, parents: np.ndarray, depth: int) -> None:
        start = 0
        for slab in self.slabs:
            slab.reorder(parents[start : start + slab.rows] - start, depth)
            start += slab.rows

    def attend(
        self,
        layer: int,
        q_RHD: Tensor,
        new: tuple[Tensor, Tensor] | None,
        scale: float,
        window: int | None = None,
        biases: Sequence[Tensor | None] = (),
    ) -> Tensor:
        biases = biases or [None] * len(self.slabs)
        if len(self.slabs) == 1:
            return self.slabs[0].attend(layer, q_RHD, new, scale, window, biases[0])
        rows = [slab.rows for slab in self.slabs]
        per_row = q_RHD.shape[0] // sum(rows)
        queries = q_RHD.split([count * per_row for count in rows])
        news = [None] * len(rows) if new is None else list(zip(new[0].split(rows), new[1].split(rows), strict=True))
        parts = zip(self.slabs, queries, news, biases, strict=True)
        return torch.cat([slab.attend(layer, q, its, scale, window, bias) for slab, q, its, bias in parts])


def _kernels_for(like: Tensor) -> GenerationKernels | None:
    return load_generation_kernels() if like.device.type == "cpu" and like.dtype == torch.float32 else None


def _pointer(tensor: Tensor | None) -> tuple[int | None, int]:
    """Its address, and the stride between rows."""
    return (None, 0) if tensor is None else (tensor.data_ptr(), tensor.stride(0))


def _cuts(lengths: Sequence[int], has_kernels: bool) -> list[int]:
    """Where a list of lengths is split into groups of similar ones."""
    slack, share = (_KERNEL_SLACK, _KERNEL_SHARE) if has_kernels else (_SLACK, _SHARE)
    cuts, low, high = [0], lengths[0], lengths[0]
    for place, length in enumerate(lengths):
        low, high = min(low, length), max(high, length)
        if high > share * low + slack:
            cuts.append(place)
            low = high = length
    return [*cuts, len(lengths)]
