"""One layer: attention, then feedforward, each wrapped in a residual connection and a norm.

post-norm (Vaswani et al. 2017, section 3.1; BERT):   x ← Norm(x + Sublayer(x))
pre-norm (GPT-2, T5, Llama; Xiong et al. 2020):        x ← x + Sublayer(Norm(x))

The decoder of an encoder–decoder has cross-attention between the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from weft.model.attention import Attention, AttentionSpec, CrossAttention, LayerPast, View
from weft.model.dropout import Dropout
from weft.model.feedforward import FeedForward, FeedForwardSpec
from weft.model.fused_layers import Norm, norm_and_input, norm_of_sum
from weft.model.keep import Maps
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import Packed


@dataclass(frozen=True)
class BlockSpec:
    attention: AttentionSpec
    feedforward: FeedForwardSpec
    norm: NormSpec
    order: Literal["pre", "post"]
    attention_dropout: float = 0.0  # on the attention output, before the residual sum
    feedforward_dropout: float = 0.0


class Block(nn.Module):
    def __init__(self, spec: BlockSpec, width: int, *, cross: bool = False, attention_norm: bool = True) -> None:
        super().__init__()
        self.post = spec.order == "post"
        self.attention = Attention(spec.attention, width)
        self.attention_norm = make_norm(spec.norm, width) if attention_norm else None
        self.cross = CrossAttention(spec.attention, width) if cross else None
        self.cross_norm = make_norm(spec.norm, width) if cross else None
        self.feedforward = FeedForward(spec.feedforward, width)
        self.feedforward_norm = make_norm(spec.norm, width)
        self.attention_dropout = Dropout(spec.attention_dropout)
        self.feedforward_dropout = Dropout(spec.feedforward_dropout)

    def forward(
        self,
        x: Tensor,
        batch: Packed,
        view: View,
        memory: Tensor | None = None,
        source: Packed | None = None,
        past: LayerPast | None = None,
        maps: Maps | None = None,
    ) -> Tensor | tuple[Tensor, Maps]:
        """`maps`: lists to fill with attention weights or scores. Returned as well, if given."""
        drop = self.attention_dropout
        own = None if maps is None else {kind: maps[kind] for kind in maps if kind != "cross"}
        x = self._wrap(x, self.attention_norm, drop, lambda h: self.attention(h, batch, view, past, own))
        if (cross := self.cross) is not None:
            x = self._wrap(x, self.cross_norm, drop, lambda h: cross(h, batch, memory, source, past, maps))
        x = self._wrap(x, self.feedforward_norm, self.feedforward_dropout, self.feedforward)
        return x if maps is None else (x, maps)

    def _wrap(self, x: Tensor, norm: Norm | None, drop: Dropout, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if norm is None:  # ModernBERT's first attention: the embeddings were normalised just before
            return x + drop(sublayer(x))
        if self.post:
            return norm_of_sum(norm, x, sublayer(x), drop.p * self.training)
        normal, x = norm_and_input(norm, x)
        return x + drop(sublayer(normal))
