"""Pooling, heads and LSTMs as nodes; see `weft.model.heads` and `weft.model.recurrent`."""

from typing import Literal

import numpy as np
from onnx import TensorProto
from torch import Tensor

from weft.exports.onnx.bricks import add_activation, add_norm
from weft.exports.onnx.graph import OnnxGraph, Value
from weft.exports.onnx.weights import Weights, to_array
from weft.model.heads import Head
from weft.model.recurrent import Recurrent

_GATES = (0, 3, 1, 2)  # torch's order is i f g o, ONNX's is i o f c, where c is g


def add_head(weights: Weights, hidden: Value, mask: Value, head: Head) -> Value:
    """Logits of each token (B, S, outputs), or of each sequence (B, outputs) if the head pools. `mask`: (B, S)."""
    graph, spec = weights.graph, head.spec
    x = hidden if spec.pool == "every" else add_pooling(graph, hidden, mask, spec.pool)
    if head.dense is not None:
        x = add_activation(graph, weights.linear(x, head.dense), spec.dense.activation)
    if head.norm is not None:
        x = add_norm(weights, x, head.norm)
    if spec.scale is not None:
        x = graph.op("Mul", x, graph.real(spec.scale))
    if head.out is None:
        return x
    return weights.tied_linear(x, head.out) if spec.tied else weights.linear(x, head.out)


def add_pooling(graph: OnnxGraph, hidden: Value, mask: Value, kind: Literal["first", "last", "mean"]) -> Value:
    """(B, W) of the tokens, wherever the padding is."""
    if kind == "mean":
        tokens = graph.to_float(mask)
        total = graph.op("Squeeze", graph.op("MatMul", graph.unsqueeze(tokens, 1), hidden), graph.integers(1))
        count = graph.op("ReduceSum", tokens, graph.integers(1), keepdims=1)
        return graph.op("Div", total, graph.op("Max", count, graph.real(1)))
    numbers = graph.op("Cast", mask, to=TensorProto.INT32)
    place = graph.op("ArgMax", numbers, axis=1, keepdims=1, select_last_index=int(kind == "last"))
    return graph.op("GatherND", hidden, place, batch_dims=1)


def add_unit_length(graph: OnnxGraph, x: Value) -> Value:
    length = graph.op("ReduceL2", x, graph.integers(-1), keepdims=1)
    return graph.op("Div", x, graph.op("Max", length, graph.real(1e-12)))  # a row without tokens stays 0


def add_recurrent(
    weights: Weights, x: Value, layer: Recurrent, mask: Value, state: tuple[Value, Value] | None
) -> tuple[Value, tuple[Value, Value]]:
    """Hidden states (B, S, W) and the state after the last token: h and c, (layers, B, W) each.

    Padding follows the tokens of a row: the state does not change there.
    """
    graph, lstm = weights.graph, layer.lstm
    count = graph.op("ReduceSum", mask, graph.integers(1), keepdims=0)
    lengths = graph.op("Cast", count, to=TensorProto.INT32)
    ones = [1] * lstm.num_layers
    before = None if state is None else [graph.split(part, 0, *ones) for part in state]
    after: list[list[Value]] = []
    x = graph.transpose(x, 1, 0, 2)  # (S, B, W): onnxruntime's CPU kernel takes no other order
    for number in range(lstm.num_layers):
        matrices = [
            weights.recurrent(_by_gates(getattr(lstm, f"weight_{kind}_l{number}"))[None], f"recurrent.{kind}.{number}")
            for kind in ("ih", "hh")
        ]
        biases = [_by_gates(getattr(lstm, f"bias_{kind}_l{number}")) for kind in ("ih", "hh")]
        bias = graph.weight(f"recurrent.bias.{number}", np.concatenate(biases)[None])
        start = [] if before is None else [part[number] for part in before]
        y, *states = graph.split_op("LSTM", 3, x, *matrices, bias, lengths, *start, hidden_size=lstm.hidden_size)
        x = graph.op("Squeeze", y, graph.integers(1))
        after.append(states)
    h, c = (graph.concat(0, *(states[part] for states in after)) for part in (0, 1))
    return graph.transpose(x, 1, 0, 2), (h, c)


def _by_gates(parameter: Tensor) -> np.ndarray:
    """Rows in ONNX's order of the gates."""
    parts = np.split(to_array(parameter), 4)
    return np.concatenate([parts[gate] for gate in _GATES])
