"""Norm, activation, feedforward and embeddings as nodes; see the modules of the same names in `weft.model`.

Hidden states are padded batches: (B, S, W). Names of shapes: B sequences, S queries, K keys, H heads, G key/value
heads, D head width, W width.
"""

import math

import torch
from torch import nn

from weft.exports.onnx.graph import OnnxGraph, Value
from weft.exports.onnx.weights import Weights, to_array
from weft.model.embeddings import Embeddings
from weft.model.feedforward import Activation, FeedForward
from weft.model.fused_layers import Norm
from weft.model.positions import Learned, Sinusoidal, sinusoid_table


def add_norm(weights: Weights, x: Value, norm: Norm) -> Value:
    if isinstance(norm, nn.RMSNorm):
        return _add_rms_norm(weights, x, norm)
    bias = [] if norm.bias is None else [weights.vector(norm.bias)]
    return weights.graph.op("LayerNormalization", x, weights.vector(norm.weight), *bias, axis=-1, epsilon=norm.eps)


def _add_rms_norm(weights: Weights, x: Value, norm: nn.RMSNorm) -> Value:
    """x / √(mean x² + ε) · g: the nodes that onnxruntime fuses into one."""
    graph = weights.graph
    assert norm.eps is not None
    mean = graph.op("ReduceMean", graph.op("Pow", x, graph.real(2)), graph.integers(-1), keepdims=1)
    scaled = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", mean, graph.real(norm.eps))))
    return graph.op("Mul", scaled, weights.vector(norm.weight))


def add_activation(graph: OnnxGraph, x: Value, name: Activation) -> Value:
    match name:
        case "gelu":
            return graph.op("Gelu", x)
        case "gelu-tanh":
            return graph.op("Gelu", x, approximate="tanh")
        case "relu":
            return graph.op("Relu", x)
        case "relu-squared":
            positive = graph.op("Relu", x)
            return graph.op("Mul", positive, positive)
        case "silu":
            return graph.op("Mul", x, graph.op("Sigmoid", x))
        case "tanh":
            return graph.op("Tanh", x)


def add_feedforward(weights: Weights, x: Value, layer: FeedForward) -> Value:
    graph, spec = weights.graph, layer.spec
    up = weights.linear(x, layer.up)
    if spec.gated:
        gated, linear = graph.split(up, -1, spec.inner, spec.inner)
        return weights.linear(graph.op("Mul", add_activation(graph, gated, spec.activation), linear), layer.down)
    return weights.linear(add_activation(graph, up, spec.activation), layer.down)


def add_embeddings(
    weights: Weights, layer: Embeddings, ids: Value, positions: Value | None, segments: Value | None
) -> Value:
    """(B, S, W). `positions`: (B, S) or (1, S), counted from 0; `segments`: (B, S)."""
    graph, spec = weights.graph, layer.spec
    x = weights.rows(ids, layer.tokens.weight)
    if spec.scaled:
        x = graph.op("Mul", x, graph.real(math.sqrt(spec.width)))
    if (table := _position_table(weights, layer)) is not None:
        assert positions is not None
        x = graph.op("Add", x, graph.op("Gather", table, positions))
    if layer.segments is not None:
        table = weights.vector(layer.segments.weight)
        chosen = graph.integer(0) if segments is None else segments
        x = graph.op("Add", x, graph.op("Gather", table, chosen))
    return x if layer.norm is None else add_norm(weights, x, layer.norm)


def _position_table(weights: Weights, layer: Embeddings) -> Value | None:
    """A row per position. Sines and cosines are stored: weft computes them in fp64, which few runtimes have."""
    positions = layer.spec.positions
    if isinstance(positions, Learned):
        parameter = layer.positions.weight
        return weights.graph.weight(weights.name(parameter), to_array(parameter)[positions.offset :])
    if isinstance(positions, Sinusoidal):
        table = sinusoid_table(torch.arange(positions.size), layer.spec.width, torch.float32)
        return weights.graph.weight("positions", table.numpy())
    return None
