"""A transformer layer described to C (layer.h)."""

import ctypes
from ctypes import c_float, c_int, c_int64

import torch
from torch import Tensor, nn

from weft.inference.matrices import KernelMatrix, KernelNorm, MatrixStruct, NormStruct, WeightPrecision
from weft.model.block import Block
from weft.model.positions import Rotary, rotary_table

_ACTIVATION_CODES = {"relu": 0, "relu-squared": 1, "silu": 2, "gelu-tanh": 3, "gelu": 4, "tanh": 5}
_NORMS = ("attention_norm", "query_norm", "key_norm", "cross_norm", "feedforward_norm")
_MATRICES = ("qkv", "out", "cross_query", "cross_key_value", "cross_out", "up", "down")
TABLE_ROWS = 1024  # positions computed at a time, always the same ones together, so that a table never changes


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, NormStruct) for name in _NORMS),
        *((name, MatrixStruct) for name in _MATRICES),
        *((name, c_int64) for name in ("width", "heads", "shared", "head_width", "inner")),
        *((name, c_int64) for name in ("cross_heads", "cross_head_width")),
        *((name, c_float) for name in ("scale", "cross_scale")),
        *((name, c_int) for name in ("post", "gated", "activation")),
    )


class LayerKernel:
    """The C struct, and the tensors whose addresses it holds."""

    def __init__(self, block: Block, precision: WeightPrecision) -> None:
        attention, feedforward, cross = block.attention.spec, block.feedforward.spec, block.cross
        norms: dict[str, nn.Module | None] = {
            "attention_norm": block.attention_norm,
            "query_norm": block.attention.query_norm,
            "key_norm": block.attention.key_norm,
            "cross_norm": block.cross_norm,
            "feedforward_norm": block.feedforward_norm,
        }
        linears = {"qkv": block.attention.qkv, "out": block.attention.out}
        linears |= {"up": block.feedforward.up, "down": block.feedforward.down}
        if cross is not None:
            linears |= {"cross_query": cross.query, "cross_key_value": cross.key_value, "cross_out": cross.out}
        self.norms = {name: KernelNorm(norm) for name, norm in norms.items()}
        self.matrices = {name: KernelMatrix(linear, precision) for name, linear in linears.items()}
        self.struct = _Layer(
            **{name: norm.struct for name, norm in self.norms.items()},
            **{name: matrix.struct for name, matrix in self.matrices.items()},
            width=self.matrices["qkv"].depth,
            heads=attention.heads,
            shared=attention.key_value_heads,
            head_width=attention.head_width,
            inner=feedforward.inner,
            cross_heads=0 if cross is None else cross.spec.heads,
            cross_head_width=0 if cross is None else cross.spec.head_width,
            scale=attention.head_width**-0.5 if attention.scaled else 1.0,
            cross_scale=0.0 if cross is None else (cross.spec.head_width**-0.5 if cross.spec.scaled else 1.0),
            post=block.post,
            gated=feedforward.gated,
            activation=_ACTIVATION_CODES[feedforward.activation],
        )
        self.address = ctypes.addressof(self.struct)


def rotary_angles(positions: Rotary, longest: int, head_width: int) -> tuple[Tensor, Tensor]:
    """cos and sin of all positions up to `longest` and some more, (positions, D) each."""
    wanted = -(-longest // TABLE_ROWS) * TABLE_ROWS
    parts = [
        rotary_table(positions, torch.arange(begin, begin + TABLE_ROWS, device="cpu"), head_width, torch.float32)
        for begin in range(0, wanted, TABLE_ROWS)
    ]
    cos, sin = (torch.cat(part).squeeze(1).contiguous() for part in zip(*parts, strict=True))
    return cos, sin
