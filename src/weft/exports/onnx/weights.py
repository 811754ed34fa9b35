"""How weights enter a graph: in fp32, or in int8.

int8: a matrix has one scale per output, and a token's activations one scale per product, computed in the graph:

    x W ≈ (round(x / s) · round(W / t)) · s · t,   s = max |x| / 127 per token,   t = max |w| / 63 per column of W

The scale is per token, not per batch as with ONNX's DynamicQuantizeLinear. So what a text gets depends neither on its
neighbours nor on padding, and a step with a cache computes the same as a whole text; it costs a quarter more time at
widths from 256 on. Activations are shifted to uint8, for which onnxruntime has its fast kernels. Weights use 7 of 8
bits: processors with AVX2 and without VNNI add two products uint8 · int8 in 16 bits, which overflow otherwise.

Rows of the token table are stored in int8, too, since they make up most of a small model. Where the table is also the
output matrix, it is stored once. Norms, biases and the tables of positions and segments stay in fp32.
"""

from abc import ABC, abstractmethod

import numpy as np
from onnx import TensorProto
from torch import Tensor, nn

from weft.exports.onnx.graph import OnnxGraph, Value
from weft.model.network import Network

_MOST_ACTIVATION, _MOST_WEIGHT, _MOST_STORED = 127, 63, 127
_ZERO = 128  # of activations
_LEAST_SCALE = 1e-30  # for rows of zeros


class Weights(ABC):
    def __init__(self, graph: OnnxGraph, network: Network) -> None:
        self.graph, self.network = graph, network
        self._names = {id(parameter): name for name, parameter in network.named_parameters()}

    def name(self, parameter: Tensor) -> str:
        return self._names[id(parameter)]

    def vector(self, parameter: Tensor) -> Value:
        return self.graph.weight(self.name(parameter), to_array(parameter))

    def linear(self, x: Value, layer: nn.Linear) -> Value:
        """x Wᵀ + b."""
        return self._with_bias(self.product(x, to_array(layer.weight).T, self.name(layer.weight)), layer)

    def tied_linear(self, x: Value, layer: nn.Linear) -> Value:
        """As `linear`, with the token table as the matrix."""
        return self._with_bias(self.product_with_table(x, layer.weight), layer)

    def _with_bias(self, x: Value, layer: nn.Linear) -> Value:
        return x if layer.bias is None else self.graph.op("Add", x, self.vector(layer.bias))

    @abstractmethod
    def product(self, x: Value, matrix_KN: np.ndarray, name: str) -> Value: ...

    @abstractmethod
    def rows(self, ids: Value, table_VW: Tensor) -> Value:
        """The rows of the token table."""

    @abstractmethod
    def product_with_table(self, x: Value, table_VW: Tensor) -> Value: ...

    @abstractmethod
    def recurrent(self, matrix_DKN: np.ndarray, name: str) -> Value:
        """A matrix of an LSTM, which ONNX computes in fp32 only."""


class FloatWeights(Weights):
    def product(self, x: Value, matrix_KN: np.ndarray, name: str) -> Value:
        return self.graph.op("MatMul", x, self.graph.weight(name, matrix_KN))

    def rows(self, ids: Value, table_VW: Tensor) -> Value:
        return self.graph.op("Gather", self.vector(table_VW), ids)

    def product_with_table(self, x: Value, table_VW: Tensor) -> Value:
        # onnxruntime transposes once, when it loads the graph.
        return self.graph.op("MatMul", x, self.graph.transpose(self.vector(table_VW), 1, 0))

    def recurrent(self, matrix_DKN: np.ndarray, name: str) -> Value:
        return self.graph.weight(name, matrix_DKN)


class Int8Weights(Weights):
    def product(self, x: Value, matrix_KN: np.ndarray, name: str) -> Value:
        matrix, scales = quantized(matrix_KN, axis=0, most=_MOST_WEIGHT)
        return self._product(x, self.graph.weight(name, matrix), self.graph.weight(f"{name}.scales", scales[0]))

    def rows(self, ids: Value, table_VW: Tensor) -> Value:
        graph = self.graph
        matrix, scales = self._table(table_VW)
        return graph.op("Mul", graph.to_float(graph.op("Gather", matrix, ids)), graph.op("Gather", scales, ids))

    def product_with_table(self, x: Value, table_VW: Tensor) -> Value:
        matrix, scales = self._table(table_VW)
        return self._product(x, self.graph.transpose(matrix, 1, 0), self.graph.reshape(scales, -1))

    def recurrent(self, matrix_DKN: np.ndarray, name: str) -> Value:
        """Stored in int8; onnxruntime turns it into fp32 once, when it loads the graph."""
        matrix, scales = quantized(matrix_DKN, axis=-1, most=_MOST_STORED)
        stored = self.graph.to_float(self.graph.weight(name, matrix))
        return self.graph.op("Mul", stored, self.graph.weight(f"{name}.scales", scales))

    def _table(self, table_VW: Tensor) -> tuple[Value, Value]:
        """int8 rows and their scales (V, 1). If the table is tied, its rows are columns of the output matrix."""
        name, graph = self.name(table_VW), self.graph
        if name not in graph.arrays:
            is_tied = any(head.tied for head in self.network.architecture.heads)
            matrix, scales = quantized(to_array(table_VW), axis=1, most=_MOST_WEIGHT if is_tied else _MOST_STORED)
            graph.weight(name, matrix)
            graph.weight(f"{name}.scales", scales)
        return name, f"{name}.scales"

    def _product(self, x: Value, matrix: Value, scales_N: Value) -> Value:
        graph = self.graph
        largest = graph.op("ReduceMax", graph.op("Abs", x), graph.integers(-1), keepdims=1)
        scale = graph.op("Max", graph.op("Mul", largest, graph.real(1 / _MOST_ACTIVATION)), graph.real(_LEAST_SCALE))
        steps = graph.op("Add", graph.op("Round", graph.op("Div", x, scale)), graph.real(_ZERO))
        whole = graph.op("Cast", steps, to=TensorProto.UINT8)
        total = graph.op("MatMulInteger", whole, matrix, graph.constant(np.asarray(_ZERO, np.uint8)))
        return graph.op("Mul", graph.op("Mul", graph.to_float(total), scale), scales_N)


def quantized(matrix: np.ndarray, *, axis: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 values up to ±`most`, and scales: one for all values along `axis`."""
    scales = np.maximum(np.abs(matrix).max(axis, keepdims=True) / most, _LEAST_SCALE).astype(np.float32)
    return np.round(matrix / scales).astype(np.int8), scales


def to_array(parameter: Tensor) -> np.ndarray:
    array: np.ndarray = parameter.detach().float().cpu().numpy()
    return array
