"""Blocks in sequence: an encoder (bidirectional) or a decoder (causal).

What several layers share is computed once here: rotary tables, T5's relative bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import torch
from torch import Tensor, nn

from weft.model.attention import LayerPast, View
from weft.model.block import Block, BlockSpec
from weft.model.dropout import Dropout
from weft.model.keep import Keep, Kept, MapKind
from weft.model.norm import make_norm
from weft.model.packed import Packed
from weft.model.positions import Positions, Relative, RelativeBias, Rotary, rotary_table


@dataclass(frozen=True)
class LocalSpec:
    """Local attention (ModernBERT; Warner et al. 2024): layers in `layers` see `window` tokens to each side."""

    layers: tuple[int, ...]
    window: int
    theta: float  # of the local layers' rotary positions


@dataclass(frozen=True)
class StackSpec:
    blocks: tuple[BlockSpec, ...]  # bottom first; `(block,) * layers` if all are equal
    causal: bool = False
    cross: bool = False  # with cross-attention to an encoder's output
    final_norm: bool = False  # after the last block; pre-norm stacks need one
    first_norm: bool = True  # before the first block's attention
    local: LocalSpec | None = None
    dropout: float = 0.0  # on the output

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("a stack needs at least one block")

    @property
    def layers(self) -> int:
        return len(self.blocks)

    @property
    def is_uniform(self) -> bool:
        """Whether all blocks are equal, as in every Hugging Face family."""
        return all(block == self.blocks[0] for block in self.blocks)


class Past(Protocol):
    """Keys and values of the tokens a decoder has read."""

    @property
    def layers(self) -> Sequence[LayerPast]: ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been read yet, so that the batch attends to itself only."""


class Stack(nn.Module):
    def __init__(self, spec: StackSpec, width: int, positions: Positions | None) -> None:
        super().__init__()
        self.spec, self.positions = spec, positions
        self.blocks = nn.ModuleList(
            Block(block, width, cross=spec.cross, attention_norm=spec.first_norm or layer > 0)
            for layer, block in enumerate(spec.blocks)
        )
        self.norm = make_norm(spec.blocks[-1].norm, width) if spec.final_norm else None
        self.dropout = Dropout(spec.dropout)
        self.relative = None
        if isinstance(positions, Relative):
            heads = {block.attention.heads for block in spec.blocks}
            if len(heads) > 1:
                raise ValueError("layers share the relative position bias, so they need the same number of heads")
            self.relative = RelativeBias(positions, heads.pop(), both_ways=not spec.causal)

    def forward(
        self,
        x_TW: Tensor,
        batch: Packed,
        memory: Tensor | None = None,
        source: Packed | None = None,
        past: Past | None = None,
        keep: Keep | None = None,
    ) -> Tensor | tuple[Tensor, Kept]:
        """Output (T, W); with `keep`, also what was kept."""
        if keep is not None:
            if past is not None:
                raise ValueError("keep does not go with a past")
            return self._forward_keeping(x_TW, batch, memory, source, keep)
        alone = past is None or past.is_empty
        views = self.views(batch, x_TW.dtype, alone=alone)
        kept: Sequence[LayerPast | None] = [None] * len(self.blocks) if past is None else past.layers
        x = x_TW
        for layer, block in enumerate(self.blocks):
            x = block(x, batch, views[layer], memory, source, kept[layer])
        return self.dropout(x if self.norm is None else self.norm(x))

    def _forward_keeping(
        self, x_TW: Tensor, batch: Packed, memory: Tensor | None, source: Packed | None, keep: Keep
    ) -> tuple[Tensor, Kept]:
        keep.check(len(self.blocks), cross=self.spec.cross)
        views = self.views(batch, x_TW.dtype, alone=True)
        x, hidden = x_TW, {0: x_TW}
        kept: dict[MapKind, dict[int, list[Tensor]]] = {kind: {} for kind in get_args(MapKind)}
        for layer, block in enumerate(self.blocks):
            if maps := keep.maps(layer):
                x, maps = block(x, batch, views[layer], memory, source, maps=maps)
            else:
                x = block(x, batch, views[layer], memory, source)
            hidden[layer + 1] = x
            for kind, found in maps.items():
                kept[kind][layer] = found
        x = self.dropout(x if self.norm is None else self.norm(x))
        hidden[len(self.blocks)] = x
        states = {number: hidden[number] for number in keep.hidden}
        return x, Kept(states, kept["attention"], kept["scores"], kept["cross"], kept["heads"])

    def views(self, batch: Packed, dtype: torch.dtype, *, alone: bool = True) -> list[View]:
        """What each layer sees. Layers that see alike share one view, so each table is computed once.

        A batch that continues a past is not `alone`: the cache of the past holds the relative bias.
        """
        bias = None
        if self.relative is not None and alone:
            # On a GPU all sequences are padded to the longest one.
            lengths = set(batch.lengths) if batch.tokens.device.type == "cpu" else {batch.longest}
            bias = {length: self.relative(length) for length in lengths}
        local = self.spec.local
        known: dict[tuple[int, bool], View] = {}
        views = []
        for layer, block in enumerate(self.spec.blocks):
            key = block.attention.head_width, local is not None and layer in local.layers
            if key not in known:
                known[key] = self._view(batch, dtype, bias, *key)
            views.append(known[key])
        return views

    def _view(
        self, batch: Packed, dtype: torch.dtype, bias: dict[int, Tensor] | None, head_width: int, is_local: bool
    ) -> View:
        positions, window = self.positions, None
        if is_local and self.spec.local is not None:
            window = self.spec.local.window
            if isinstance(positions, Rotary):
                positions = Rotary(positions.size, self.spec.local.theta)
        table = None
        if isinstance(positions, Rotary):
            table = rotary_table(positions, batch.positions, head_width, dtype)
        return View(self.spec.causal, window, bias, table)
