"""A decoder layer in as few operations as possible.

In a step of a small model, calls cost more than arithmetic: modules, views, small tensors. So this is
`model.block.Block` again for generation only (no gradient, no dropout, a cache), over the same weights, with in-place
residual sums. Where `kernels.c` supports the layer, it is one call. A test checks that all three agree.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from weft.generate.cache import LayerCache
from weft.generate.layer_kernel import layer_kernel_for
from weft.generate.layouts import layout_of
from weft.model.attention import Attention, CrossAttention, LayerPast, View
from weft.model.block import Block
from weft.model.feedforward import FeedForward, activate_in_place
from weft.model.packed import Packed
from weft.model.positions import rotate


class InferenceBlock:
    def __init__(self, block: Block, *, int8: bool) -> None:
        self.post = block.post
        self.attention = _SelfAttention(block.attention, int8=int8)
        self.attention_norm = _norm(block.attention_norm)
        self.cross = None if block.cross is None else _CrossAttention(block.cross, int8=int8)
        self.cross_norm = _norm(block.cross_norm)
        self.feedforward = _FeedForward(block.feedforward, int8=int8)
        self.feedforward_norm = _norm(block.feedforward_norm)
        layouts = {"qkv": self.attention.qkv, "out": self.attention.out}
        self.whole = layer_kernel_for(block, {**layouts, "up": self.feedforward.up, "down": self.feedforward.down})

    def __call__(self, x: Tensor, batch: Packed, view: View, memory: None, source: None, past: LayerCache) -> Tensor:
        """Changes `x` in place; the caller must not use it again."""
        if self.whole is not None and past.run(self.whole, x, view):
            return x
        norm = self.attention_norm
        x = self.attention.add_to(x, x if self.post or norm is None else norm(x), batch, view, past)
        x = norm(x) if self.post and norm is not None else x
        if self.cross is not None:
            norm = self.cross_norm
            x = self.cross.add_to(x, x if self.post or norm is None else norm(x), past)
            x = norm(x) if self.post and norm is not None else x
        norm = self.feedforward_norm
        x = self.feedforward.add_to(x, x if self.post or norm is None else norm(x))
        return norm(x) if self.post and norm is not None else x


class _SelfAttention:
    def __init__(self, attention: Attention, *, int8: bool) -> None:
        self.qkv, self.out = layout_of(attention.qkv, int8=int8), layout_of(attention.out, int8=int8)
        self.query_norm, self.key_norm = _norm(attention.query_norm), _norm(attention.key_norm)
        spec = attention.spec
        self.head_width, self.scaled = spec.head_width, spec.scaled
        self.sizes = [spec.heads, spec.key_value_heads, spec.key_value_heads]

    def add_to(self, sum_: Tensor, x: Tensor, batch: Packed, view: View, past: LayerPast) -> Tensor:
        rows = x.shape[0]
        heads = self.qkv(x).view(rows, -1, self.head_width)
        q, k, v = torch.split_with_sizes(heads, self.sizes, 1)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if view.rotary is not None:
            q, k = rotate(q, view.rotary), rotate(k, view.rotary)
        mixed = past.attend(q, k, v, batch, view, self.scaled)
        return self.out.add_to(sum_, mixed.flatten(1))


class _CrossAttention:
    def __init__(self, cross: CrossAttention, *, int8: bool) -> None:
        self.query, self.out = layout_of(cross.query, int8=int8), layout_of(cross.out, int8=int8)
        self.keys_and_values = cross.keys_and_values
        self.head_width, self.scaled = cross.spec.head_width, cross.spec.scaled

    def add_to(self, sum_: Tensor, x: Tensor, past: LayerPast) -> Tensor:
        rows = x.shape[0]
        mixed = past.attend_source(self.query(x).view(rows, -1, self.head_width), self.scaled)
        return self.out.add_to(sum_, mixed.flatten(1))


class _FeedForward:
    def __init__(self, feedforward: FeedForward, *, int8: bool) -> None:
        self.apply_activation = feedforward.apply_activation
        self.up, self.down = layout_of(feedforward.up, int8=int8), layout_of(feedforward.down, int8=int8)

    def add_to(self, sum_: Tensor, x: Tensor) -> Tensor:
        return self.down.add_to(sum_, self.apply_activation(self.up(x), activate_in_place))


def _norm(norm: nn.Module | None) -> Callable[[Tensor], Tensor] | None:
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, epsilon = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return None if norm is None else norm.forward


def inference_blocks(blocks: nn.ModuleList, *, int8: bool) -> list[InferenceBlock]:
    found = []
    for block in blocks:
        assert isinstance(block, Block)
        found.append(InferenceBlock(block, int8=int8))
    return found
