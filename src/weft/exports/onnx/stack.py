"""Blocks and stacks as nodes; see `weft.model.block` and `weft.model.stack`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.exports.onnx.attention import (
    Indices,
    KeyValues,
    LayerView,
    add_attention,
    add_bias,
    add_cross_attention,
    add_relative_bias,
    add_rotary_table,
    add_source_keys,
)
from weft.exports.onnx.bricks import add_feedforward, add_norm
from weft.exports.onnx.graph import Value
from weft.exports.onnx.weights import Weights
from weft.model.attention import CrossAttention
from weft.model.block import Block
from weft.model.fused_layers import Norm
from weft.model.positions import Rotary
from weft.model.stack import Stack


@dataclass(frozen=True)
class SourceView:
    """What a decoder's cross-attention reads: the keys and values of each layer, and the bias that hides padding."""

    layers: Sequence[KeyValues]
    bias: Value


def add_stack(
    weights: Weights,
    x: Value,
    stack: Stack,
    indices: Indices,
    positions: Value | None,
    past: Sequence[KeyValues] | None = None,
    source: SourceView | None = None,
) -> tuple[Value, list[KeyValues]]:
    """Hidden states (B, S, W), and the keys and values of each layer, with those in `past`."""
    known: list[KeyValues] = []
    for layer, (block, view) in enumerate(zip(stack.blocks, _views(weights, stack, indices, positions), strict=True)):
        assert isinstance(block, Block)
        before = None if past is None else past[layer]
        cross = None if source is None else (source.layers[layer], source.bias)
        x, keys_and_values = _add_block(weights, x, block, view, before, cross)
        known.append(keys_and_values)
    return (x if stack.norm is None else add_norm(weights, x, stack.norm)), known


def add_source(weights: Weights, stack: Stack, memory: Value) -> list[KeyValues]:
    """Keys and values of the encoder's output in each layer."""
    crossings = [crossing for block in stack.blocks if isinstance(crossing := block.cross, CrossAttention)]
    return [add_source_keys(weights, crossing, memory) for crossing in crossings]


def add_source_unless_known(
    weights: Weights, stack: Stack, memory: Value, past: Sequence[KeyValues]
) -> list[KeyValues]:
    """Those in `past`, or if it is empty, as `add_source`."""
    graph = weights.graph

    def flat(layers: Sequence[KeyValues]) -> list[Value]:
        return [value for layer in layers for value in (layer.keys, layer.values)]

    is_new = graph.op("Equal", graph.size(past[0].keys, 2), graph.integer(0))
    chosen = graph.choose(is_new, lambda: flat(add_source(weights, stack, memory)), lambda: flat(past), rank=4)
    return [KeyValues(*pair) for pair in zip(chosen[::2], chosen[1::2], strict=True)]


def _add_block(
    weights: Weights,
    x: Value,
    block: Block,
    view: LayerView,
    past: KeyValues | None,
    cross: tuple[KeyValues, Value] | None,
) -> tuple[Value, KeyValues]:
    known: list[KeyValues] = []

    def attend(h: Value) -> Value:
        out, keys_and_values = add_attention(weights, h, block.attention, view, past)
        known.append(keys_and_values)
        return out

    x = _wrap(weights, x, block.attention_norm, attend, post=block.post)
    if cross is not None and (layer := block.cross) is not None:
        keys_and_values, bias = cross
        x = _wrap(
            weights,
            x,
            block.cross_norm,
            lambda h: add_cross_attention(weights, h, layer, keys_and_values, bias),
            post=block.post,
        )
    x = _wrap(
        weights, x, block.feedforward_norm, lambda h: add_feedforward(weights, h, block.feedforward), post=block.post
    )
    return x, known[0]


def _wrap(weights: Weights, x: Value, norm: Norm | None, sublayer: Callable[[Value], Value], *, post: bool) -> Value:
    """The residual sum and the norm around a sublayer."""
    graph = weights.graph
    if norm is None:
        return graph.op("Add", x, sublayer(x))
    if post:
        return add_norm(weights, graph.op("Add", x, sublayer(x)), norm)
    return graph.op("Add", x, sublayer(add_norm(weights, x, norm)))


def _views(weights: Weights, stack: Stack, indices: Indices, positions: Value | None) -> list[LayerView]:
    """What each layer sees. Layers that see alike share the nodes."""
    spec, graph = stack.spec, weights.graph
    relative = None if stack.relative is None else add_relative_bias(weights, stack.relative, indices)
    biases: dict[int | None, Value | None] = {}
    tables: dict[tuple[Rotary, int], tuple[Value, Value]] = {}
    views = []
    for layer, block in enumerate(spec.blocks):
        is_local = spec.local is not None and layer in spec.local.layers
        window = spec.local.window if is_local else None
        if window not in biases:
            biases[window] = add_bias(graph, indices, causal=spec.causal, window=window, relative=relative)
        rotary = None
        if isinstance(stack.positions, Rotary):
            assert positions is not None
            chosen = Rotary(stack.positions.size, spec.local.theta) if is_local else stack.positions
            key = chosen, block.attention.head_width
            if key not in tables:
                tables[key] = add_rotary_table(graph, chosen, positions, key[1])
            rotary = tables[key]
        views.append(LayerView(biases[window], rotary))
    return views
