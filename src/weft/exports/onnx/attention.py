"""Attention as nodes: masks and biases, rotary positions, the cache, grouped heads.

Shapes are as in `bricks`. Nothing depends on a fixed length: Reshape copies dimensions (0) or infers one (−1).
"""

from dataclasses import dataclass

import numpy as np
import torch

from weft.exports.onnx.bricks import add_norm
from weft.exports.onnx.graph import OnnxGraph, Value
from weft.exports.onnx.weights import Weights, to_array
from weft.model.attention import Attention, AttentionSpec, CrossAttention
from weft.model.positions import RelativeBias, Rotary, relative_bucket, rotary_frequencies

_LOWEST = float(np.finfo(np.float32).min)  # not −inf: a row that sees nothing must not become NaN


@dataclass(frozen=True)
class Indices:
    """Where queries (S,) and keys (K,) stand in their sequence, and which keys are tokens: (B, 1, 1, K), or None if all
    are.
    """

    queries: Value
    keys: Value
    tokens: Value | None


@dataclass(frozen=True)
class LayerView:
    """What is added to the scores, to be broadcast to (B, H, S, K), and cos and sin (B, 1, S, D/2) of rotary
    positions.
    """

    bias: Value | None
    rotary: tuple[Value, Value] | None = None


@dataclass(frozen=True)
class KeyValues:
    """Keys and values, (B, G, K, D) each."""

    keys: Value
    values: Value


def add_bias(
    graph: OnnxGraph, indices: Indices, *, causal: bool, window: int | None, relative: Value | None
) -> Value | None:
    """`relative` or 0 where a query sees a key, else the lowest number. None: it sees all alike."""
    parts = [] if indices.tokens is None else [indices.tokens]
    if causal or window is not None:
        distance = _distances(graph, indices)  # key − query
        if causal:
            parts.append(graph.op("LessOrEqual", distance, graph.integer(0)))
        if window is not None:
            parts.append(graph.op("LessOrEqual", graph.op("Abs", distance), graph.integer(window)))
    if not parts:
        return relative
    seen = parts[0]
    for part in parts[1:]:
        seen = graph.op("And", seen, part)
    return graph.op("Where", seen, graph.real(0) if relative is None else relative, graph.real(_LOWEST))


def add_padding_bias(graph: OnnxGraph, tokens: Value) -> Value:
    """(B, 1, 1, K): 0 for tokens, the lowest number for padding."""
    return graph.op("Where", tokens, graph.real(0), graph.real(_LOWEST))


def _distances(graph: OnnxGraph, indices: Indices) -> Value:
    """(S, K): key − query."""
    return graph.op("Sub", graph.unsqueeze(indices.keys, 0), graph.unsqueeze(indices.queries, 1))


def add_relative_bias(weights: Weights, layer: RelativeBias, indices: Indices) -> Value:
    """(H, S, K). The buckets are looked up by distance: further away than the largest one all share a bucket."""
    graph, limit = weights.graph, layer.spec.distance
    buckets = relative_bucket(torch.arange(-limit, limit + 1), layer.spec, both_ways=layer.both_ways)
    table = graph.weight(weights.name(layer.table.weight), to_array(layer.table.weight)[buckets.numpy()])
    near = graph.op("Clip", _distances(graph, indices), graph.integer(-limit), graph.integer(limit))
    bias_SKH = graph.op("Gather", table, graph.op("Add", near, graph.integer(limit)))
    return graph.transpose(bias_SKH, 2, 0, 1)


def add_rotary_table(graph: OnnxGraph, rotary: Rotary, positions: Value, head_width: int) -> tuple[Value, Value]:
    """cos and sin (B, 1, S, D/2) of positions (B, S)."""
    frequencies = rotary_frequencies(rotary, head_width, torch.device("cpu")).numpy()
    places = graph.unsqueeze(graph.to_float(positions), 1, 3)
    angle = graph.op("Mul", places, graph.constant(frequencies))
    return graph.op("Cos", angle), graph.op("Sin", angle)


def add_attention(
    weights: Weights, x: Value, layer: Attention, view: LayerView, past: KeyValues | None
) -> tuple[Value, KeyValues]:
    """(B, S, W), and all keys and values: those in `past` and the new ones."""
    graph, spec = weights.graph, layer.spec
    counts = (spec.heads, spec.key_value_heads, spec.key_value_heads)
    heads = _to_heads(graph, weights.linear(x, layer.qkv), sum(counts), spec.head_width)
    queries, keys, values = graph.split(heads, 1, *counts)
    if layer.query_norm is not None and layer.key_norm is not None:
        queries, keys = add_norm(weights, queries, layer.query_norm), add_norm(weights, keys, layer.key_norm)
    if view.rotary is not None:
        half = spec.head_width // 2
        queries, keys = _rotated(graph, queries, view.rotary, half), _rotated(graph, keys, view.rotary, half)
    if past is not None:
        keys, values = graph.concat(2, past.keys, keys), graph.concat(2, past.values, values)
    out = _attend(graph, queries, keys, values, view.bias, spec)
    return weights.linear(out, layer.out), KeyValues(keys, values)


def add_source_keys(weights: Weights, layer: CrossAttention, memory: Value) -> KeyValues:
    """Keys and values of the encoder's output (B, K, W)."""
    graph, spec = weights.graph, layer.spec
    heads = _to_heads(graph, weights.linear(memory, layer.key_value), 2 * spec.heads, spec.head_width)
    return KeyValues(*graph.split(heads, 1, spec.heads, spec.heads))


def add_cross_attention(
    weights: Weights, x: Value, layer: CrossAttention, source: KeyValues, bias: Value | None
) -> Value:
    graph, spec = weights.graph, layer.spec
    queries = _to_heads(graph, weights.linear(x, layer.query), spec.heads, spec.head_width)
    ungrouped = AttentionSpec(spec.heads, spec.head_width, spec.heads, scaled=spec.scaled)
    out = _attend(graph, queries, source.keys, source.values, bias, ungrouped)
    return weights.linear(out, layer.out)


def _to_heads(graph: OnnxGraph, x: Value, count: int, head_width: int) -> Value:
    """(B, S, H·D) -> (B, H, S, D)."""
    return graph.transpose(graph.reshape(x, 0, 0, count, head_width), 0, 2, 1, 3)


def _rotated(graph: OnnxGraph, x: Value, table: tuple[Value, Value], half: int) -> Value:
    """Each pair (x_i, x_{i+D/2}) rotated by its angle: (a cos − b sin, b cos + a sin)."""
    (a, b), (cos, sin) = graph.split(x, -1, half, half), table
    first = graph.op("Sub", graph.op("Mul", a, cos), graph.op("Mul", b, sin))
    second = graph.op("Add", graph.op("Mul", b, cos), graph.op("Mul", a, sin))
    return graph.concat(-1, first, second)


def _attend(
    graph: OnnxGraph, queries: Value, keys: Value, values: Value, bias: Value | None, spec: AttentionSpec
) -> Value:
    """(B, S, H·D). Queries (B, H, S, D) that share a key/value head form one long row of queries, so nothing is
    repeated.
    """
    heads, groups, width = spec.heads, spec.key_value_heads, spec.head_width
    if spec.scaled:
        queries = graph.op("Mul", queries, graph.real(width**-0.5))
    if groups != heads:
        queries = graph.reshape(queries, 0, groups, -1, width)
    scores = graph.op("MatMul", queries, graph.transpose(keys, 0, 1, 3, 2))
    if groups != heads:
        scores = graph.reshape(scores, 0, heads, -1, 0)
    if bias is not None:
        scores = graph.op("Add", scores, bias)
    shares = graph.op("Softmax", scores, axis=-1)
    if groups != heads:
        shares = graph.reshape(shares, 0, groups, -1, 0)
    out = graph.op("MatMul", shares, values)
    if groups != heads:
        out = graph.reshape(out, 0, heads, -1, width)
    return graph.reshape(graph.transpose(out, 0, 2, 1, 3), 0, 0, heads * width)
