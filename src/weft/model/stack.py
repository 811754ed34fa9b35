"""Blocks on top of each other: an encoder (everyone sees everyone) or a decoder (nobody looks ahead).

What all layers share is computed once here: the rotary table, T5's relative bias, the window of local attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    """Alternating attention (ModernBERT; Warner et al. 2024): layers in `layers` see `window` tokens to each side."""

    layers: tuple[int, ...]
    window: int
    theta: float  # of the local layers' rotary positions


@dataclass(frozen=True)
class StackSpec:
    layers: int
    block: BlockSpec
    causal: bool = False
    cross: bool = False  # attends to an encoder's output as well
    final_norm: bool = False  # after the last block; pre-norm stacks need one
    first_norm: bool = True  # before the first attention
    local: LocalSpec | None = None
    dropout: float = 0.0  # on the output


class Past(Protocol):
    """What a decoder keeps of the tokens it has read."""

    @property
    def layers(self) -> Sequence[LayerPast]: ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been read yet: then a batch stands by itself, and its own views are needed."""


class Stack(nn.Module):
    def __init__(self, spec: StackSpec, width: int, positions: Positions | None) -> None:
        super().__init__()
        self.spec, self.positions = spec, positions
        self.blocks = nn.ModuleList(
            Block(spec.block, width, cross=spec.cross, attention_norm=spec.first_norm or layer > 0)
            for layer in range(spec.layers)
        )
        self.norm = make_norm(spec.block.norm, width) if spec.final_norm else None
        self.dropout = Dropout(spec.dropout)
        heads = spec.block.attention.heads
        self.relative = None
        if isinstance(positions, Relative):
            self.relative = RelativeBias(positions, heads, both_ways=not spec.causal)

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
        everywhere, nearby = self._views(batch, x_TW.dtype, alone=alone)
        local = () if self.spec.local is None else self.spec.local.layers
        kept: Sequence[LayerPast | None] = [None] * len(self.blocks) if past is None else past.layers
        x = x_TW
        for layer, block in enumerate(self.blocks):
            x = block(x, batch, nearby if layer in local else everywhere, memory, source, kept[layer])
        return self.dropout(x if self.norm is None else self.norm(x))

    def _forward_keeping(
        self, x_TW: Tensor, batch: Packed, memory: Tensor | None, source: Packed | None, keep: Keep
    ) -> tuple[Tensor, Kept]:
        keep.check(len(self.blocks), cross=self.spec.cross)
        everywhere, nearby = self._views(batch, x_TW.dtype, alone=True)
        local = () if self.spec.local is None else self.spec.local.layers
        x, hidden, kept = x_TW, {0: x_TW}, dict[MapKind, dict[int, list[Tensor]]](attention={}, scores={}, cross={})
        for layer, block in enumerate(self.blocks):
            view = nearby if layer in local else everywhere
            if maps := keep.maps(layer):
                x, maps = block(x, batch, view, memory, source, maps=maps)
            else:
                x = block(x, batch, view, memory, source)
            hidden[layer + 1] = x
            for kind, found in maps.items():
                kept[kind][layer] = found
        x = self.dropout(x if self.norm is None else self.norm(x))
        hidden[len(self.blocks)] = x
        states = {number: hidden[number] for number in keep.hidden}
        return x, Kept(states, kept["attention"], kept["scores"], kept["cross"])

    def _views(self, batch: Packed, dtype: torch.dtype, *, alone: bool) -> tuple[View, View]:
        """What global layers see, and what local layers see. A batch that goes on with what was read before is not
        `alone`: the bias of its distances is known to what keeps the past.
        """
        spec, positions = self.spec, self.positions
        bias = None
        if self.relative is not None and alone:
            bias = {length: self.relative(length) for length in set(batch.lengths)}
        everywhere = View(spec.causal, bias=bias, rotary=self._rotary(positions, batch, dtype))
        if spec.local is None:
            return everywhere, everywhere
        local = positions
        if isinstance(positions, Rotary):
            local = Rotary(positions.size, spec.local.theta)
        return everywhere, View(spec.causal, spec.local.window, bias, self._rotary(local, batch, dtype))

    def _rotary(self, positions: Positions | None, batch: Packed, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        if not isinstance(positions, Rotary):
            return None
        return rotary_table(positions, batch.positions, self.spec.block.attention.head_width, dtype)
