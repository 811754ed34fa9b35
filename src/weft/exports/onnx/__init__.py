"""ONNX: graphs for onnxruntime, optimum, sentence-transformers and transformers.js.

weft writes the nodes itself, from the same specs that its networks are built from: every family, also mixtures that no
other library knows, in a second or less and without tracing.

    graph       nodes, constants, weights; the file
    weights     fp32 or int8
    bricks      norm, activation, feedforward, embeddings
    attention   masks, positions, the cache
    stack       blocks
    heads       pooling, heads, LSTMs
    models      whole graphs: inputs and outputs
    write       the folder
    runtime     the folder in onnxruntime
    compare     against weft
"""

from pathlib import Path
from typing import Any

from weft.api.model import Model
from weft.exports.target import Comparison, ExportTarget


def _why_not(model: Model, precision: str) -> str | None:
    heads = model.network.heads
    if {"causal", "seq2seq"} & set(heads) and len(heads) > 1:
        return f"it has heads beside the one that writes: {', '.join(heads)}."
    return None


def _write(model: Model, folder: Path, precision: str) -> dict[str, Any]:
    from weft.exports.onnx.write import write_onnx

    return write_onnx(model, folder, precision)


def _compare(model: Model, folder: Path, precision: str) -> Comparison:
    from weft.exports.onnx.compare import compare_onnx

    return compare_onnx(model, folder, precision)


def _next_step(model: Model, folder: Path) -> str:
    from weft.exports.onnx.usage import usage_of

    return usage_of(model, folder)


ONNX = ExportTarget(
    name="onnx",
    title="ONNX",
    packages=("onnx",),
    runtime="onnxruntime",
    precisions=("fp32", "int8"),
    why_not=_why_not,
    write=_write,
    compare=_compare,
    next_step=_next_step,
)
