"""A graph in the making, and its file.

Values are known by name. `graph.op("Add", x, y)` adds a node and returns the name of its output, so a network is
written down as it would be computed. Equal constants are stored once. Weights keep the names they have in weft.

Opset 20 is the first with Gelu; onnxruntime runs it since 1.17. A file of Protocol Buffers ends at 2 GB, so larger
weights go into a second file beside it, `model.onnx_data`.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.version import VERSION

OPSET, _IR_VERSION = 20, 9
_MOST_INLINE_BYTES = 1_800_000_000  # of weights in the graph's own file
_LEAST_EXTERNAL_BYTES = 1024  # shape inference reads small constants, so they stay in the graph's file
_ALIGNMENT = 4096  # of weights in the second file, so that it can be mapped into memory
Value = str
Dimensions = Sequence[int | str]  # a string names a dimension that varies


class OnnxGraph:
    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, onnx.ValueInfoProto] = {}
        self.outputs: dict[str, onnx.ValueInfoProto] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self._count = 0  # of nodes, also those of branches
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def input(self, name: str, kind: int, dimensions: Dimensions) -> Value:
        self.inputs[name] = helper.make_tensor_value_info(name, kind, dimensions)
        return name

    def integer_input(self, name: str, *dimensions: int | str) -> Value:
        return self.input(name, TensorProto.INT64, dimensions)

    def float_input(self, name: str, *dimensions: int | str) -> Value:
        return self.input(name, TensorProto.FLOAT, dimensions)

    def float_output(self, name: str, value: Value, *dimensions: int | str) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output {name}"))
        self.outputs[name] = helper.make_tensor_value_info(name, TensorProto.FLOAT, dimensions)

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        return self.split_op(kind, 1, *inputs, **attributes)[0]

    def split_op(self, kind: str, count: int, *inputs: Value, **attributes: Any) -> list[Value]:
        """A node with several outputs. An empty name skips an optional input or output."""
        name = f"{kind}_{self._count}"
        self._count += 1
        outputs = [name] if count == 1 else [f"{name}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs

    def weight(self, name: str, array: np.ndarray) -> Value:
        self.arrays[name] = array
        return name

    def constant(self, array: np.ndarray) -> Value:
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def real(self, value: float) -> Value:
        return self.constant(np.asarray(value, np.float32))

    def integer(self, value: int) -> Value:
        return self.constant(np.asarray(value, np.int64))

    def integers(self, *values: int) -> Value:
        return self.constant(np.asarray(values, np.int64))

    def reshape(self, x: Value, *shape: int) -> Value:
        """0 keeps the dimension at its place, −1 stands for what is left."""
        return self.op("Reshape", x, self.integers(*shape))

    def transpose(self, x: Value, *order: int) -> Value:
        return self.op("Transpose", x, perm=order)

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        return self.op("Unsqueeze", x, self.integers(*axes))

    def split(self, x: Value, axis: int, *sizes: int) -> list[Value]:
        return self.split_op("Split", len(sizes), x, self.integers(*sizes), axis=axis)

    def concat(self, axis: int, *values: Value) -> Value:
        return self.op("Concat", *values, axis=axis)

    def to_float(self, x: Value) -> Value:
        return self.op("Cast", x, to=TensorProto.FLOAT)

    def to_bool(self, x: Value) -> Value:
        return self.op("Cast", x, to=TensorProto.BOOL)

    def size(self, x: Value, axis: int) -> Value:
        """The length of one dimension, as a number."""
        return self.op("Squeeze", self.op("Shape", x, start=axis, end=axis + 1))

    def choose(
        self, condition: Value, then: Callable[[], list[Value]], otherwise: Callable[[], list[Value]], rank: int
    ) -> list[Value]:
        """What one of two branches computes: float tensors of this rank, as many in both. Only that one runs."""
        branches = [self._branch(name, build, rank) for name, build in (("then", then), ("otherwise", otherwise))]
        count = len(branches[0].output)
        return self.split_op("If", count, condition, then_branch=branches[0], else_branch=branches[1])

    def _branch(self, name: str, build: Callable[[], list[Value]], rank: int) -> onnx.GraphProto:
        """The nodes that `build` adds. Weights and values of the whole graph are visible in a branch."""
        around, self.nodes = self.nodes, []
        values = [self.op("Identity", value) for value in build()]
        nodes, self.nodes = self.nodes, around
        results = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [None] * rank) for value in values]
        return helper.make_graph(nodes, name, [], results)

    def save(self, file: Path) -> bool:
        """Writes the file. Returns whether the weights are in a second one."""
        is_external = sum(array.nbytes for array in self.arrays.values()) > _MOST_INLINE_BYTES
        graph = helper.make_graph(self.nodes, self.name, list(self.inputs.values()), list(self.outputs.values()))
        imports = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=imports, ir_version=_IR_VERSION, producer_name="weft", producer_version=VERSION
        )
        with _second_file(file) if is_external else nullcontext() as data:
            for name, array in self.arrays.items():
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                tensor = model.graph.initializer.add(name=name, data_type=kind, dims=array.shape)
                if data is None or array.nbytes < _LEAST_EXTERNAL_BYTES:
                    tensor.raw_data = array.tobytes()
                else:
                    _store(tensor, array, data)
        file.write_bytes(model.SerializeToString())
        return is_external


def _second_file(file: Path) -> BinaryIO:
    return file.with_name(file.name + "_data").open("wb")


def _store(tensor: onnx.TensorProto, array: np.ndarray, data: BinaryIO) -> None:
    data.write(bytes(-data.tell() % _ALIGNMENT))
    place = {"location": Path(data.name).name, "offset": data.tell(), "length": array.nbytes}
    data.write(array.tobytes())
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
