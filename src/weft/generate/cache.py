"""The key–value cache of a decoder: of its own tokens, and of the encoder's source. `slab` says how they are stored."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.generate.layer_kernel import LayerKernel
from weft.generate.slab import LayerShape, Slab, SlabGroups
from weft.model.attention import View, attend
from weft.model.packed import Packed
from weft.model.positions import RelativeBias
from weft.model.stack import Stack

_ROOM = 256  # free columns at first, at most


class LayeredSlabs:
    """The slabs of all layers. Layers with the same heads share slabs: in most models, all of them."""

    def __init__(self, heads: Sequence[tuple[int, int]], lengths: Sequence[int], room: int, like: Tensor) -> None:
        """`heads`: of each layer, how many and how wide."""
        counts = Counter(heads)
        groups = {key: SlabGroups(LayerShape(count, *key), lengths, room, like) for key, count in counts.items()}
        self.groups = list(groups.values())
        self.layers = [(groups[key], heads[:layer].count(key)) for layer, key in enumerate(heads)]

    @property
    def slabs(self) -> list[Slab]:
        """Those of the first layers; the slabs of others have the same rows and columns."""
        return self.groups[0].slabs


class KeyValueCache:
    """The cache of a Transformer decoder: of the generated tokens, and of the encoder's source."""

    def __init__(self, stack: Stack, room: int) -> None:
        self.stack, self.room = stack, min(room, _ROOM)
        self.written: LayeredSlabs | None = None
        self.source: LayeredSlabs | None = None
        self.layers = [LayerCache(self, layer) for layer in range(stack.spec.layers)]
        self.is_empty = True
        self.biases: list[Tensor | None] = []

    def read_source(self, memory_TW: Tensor, source: Packed) -> None:
        """Store the encoder's output as keys and values of every layer."""
        heads = [(block.attention.heads, block.attention.head_width) for block in self.stack.spec.blocks]
        self.source = LayeredSlabs(heads, source.lengths, 0, memory_TW)
        for (groups, layer), block in zip(self.source.layers, self.stack.blocks, strict=True):
            cross: Any = block.cross  # a module, or its form for inference
            groups.fill(layer, *cross.keys_and_values(memory_TW))

    def begin(self, batch: Packed, like: Tensor) -> None:
        attentions = [block.attention for block in self.stack.spec.blocks]
        heads = [(attention.key_value_heads, attention.head_width) for attention in attentions]
        self.written = LayeredSlabs(heads, batch.lengths, self.room, like)

    def open_column(self) -> None:
        self.is_empty = False
        for groups in self.written.groups:
            for slab in groups.slabs:
                slab.open_column()
        relative = self.stack.relative
        self.biases = [_bias(relative, slab.end - slab.first) for slab in self.written.slabs]

    def keep(self, rows: np.ndarray) -> None:
        self._keep(rows, rows)

    def keep_sources(self, sources: np.ndarray, per_source: int) -> None:
        """As `keep`, for all rows of these sources."""
        self._keep(sources, rows_of(sources, per_source))

    def _keep(self, sources: np.ndarray, rows: np.ndarray) -> None:
        for groups in [] if self.source is None else self.source.groups:
            groups.keep(sources)
        for groups in self.written.groups:
            groups.keep(rows)

    def share_source(self, per_source: int) -> None:
        """Copy each row `per_source` times; the copies share its source."""
        rows = np.repeat(np.arange(sum(slab.rows for slab in self.written.slabs)), per_source)
        for groups in self.written.groups:
            groups.keep(rows)

    def reorder(self, parents: np.ndarray, depth: int) -> None:
        for groups in self.written.groups:
            groups.reorder(parents, depth)


def rows_of(sources: np.ndarray, per_source: int) -> np.ndarray:
    """The rows of these sources; those of one source are neighbours."""
    return (sources[:, None] * per_source + np.arange(per_source)).ravel()


def _bias(relative: RelativeBias | None, length: int) -> Tensor | None:
    return None if relative is None else relative.of_last(length)


class LayerCache:
    """One layer's part of the cache."""

    def __init__(self, past: KeyValueCache, layer: int) -> None:
        self.past, self.layer = past, layer

    def run(self, whole: LayerKernel, x_TW: Tensor, view: View) -> bool:
        """Run the whole layer in one C call per slab, changing `x` in place. Returns False if that is not possible."""
        past = self.past
        if past.is_empty or past.written is None or x_TW.dtype is not torch.float32 or not x_TW.is_contiguous():
            return False
        if past.written.slabs[0].kernels is None:
            return False
        start, (groups, layer) = 0, past.written.layers[self.layer]
        for slab, bias in zip(groups.slabs, past.biases, strict=True):
            slab.run(layer, whole, x_TW[start : start + slab.rows], view, start, bias)
            start += slab.rows
        return True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, batch: Packed, view: View, scaled: bool) -> Tensor:
        past = self.past
        if past.is_empty:
            if self.layer == 0:
                past.begin(batch, k)
            groups, layer = past.written.layers[self.layer]
            groups.fill(layer, k, v)
            return attend(q, k, v, batch, batch, view, scaled=scaled, dropout=0.0)
        groups, layer = past.written.layers[self.layer]
        return groups.attend(layer, q, (k, v), _scale(q, scaled), view.window, past.biases)

    def attend_source(self, q: Tensor, scaled: bool) -> Tensor:
        groups, layer = self.past.source.layers[self.layer]
        return groups.attend(layer, q, None, _scale(q, scaled))


def _scale(q: Tensor, scaled: bool) -> float:
    return q.shape[-1] ** -0.5 if scaled else 1.0
