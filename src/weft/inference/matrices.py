"""Weights in the order in which the C kernels read them: fp32, bf16, int8, or int4 if they are stored so.

Blocks of 64 outputs; in a block, the weights of all outputs for one input after another (fp32), or for two (bf16) or
four (int8) inputs side by side, because one instruction multiplies as many and adds them up.
"""

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.inference.int4 import fits_int4, pack_int4
from weft.model.norm import RMSNorm
from weft.model.quantized import QuantizedLinear, QuantizedWeight, quantize_weight

WeightPrecision = Literal["fp32", "bf16", "int8"]
_Kind = WeightPrecision | Literal["int4"]

_BLOCK_COLUMNS = 64  # as in product.h, tiles.h and int8.h
_MOST_INT8_DEPTH = (2**31 - 1) // 127**2  # as in int8.h
_KINDS: dict[_Kind, int] = {"fp32": 0, "int8": 1, "bf16": 2, "int4": 3}  # as in layer.h


class MatrixStruct(ctypes.Structure):
    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("sums", c_void_p),
        *((name, c_int64) for name in ("depth", "width", "group")),
        ("kind", c_int),
    )


class NormStruct(ctypes.Structure):
    _fields_ = (("gain", c_void_p), ("bias", c_void_p), ("epsilon", c_float), ("kind", c_int))


class KernelMatrix:
    """A linear layer's weights as the kernels read them. Inputs of int8 and int4 weights are quantized when they are
    multiplied, with a scale per row.
    """

    def __init__(self, linear: nn.Linear | QuantizedLinear, precision: WeightPrecision) -> None:
        """A layer that is stored in int8 or int4 stays as it is, whatever the precision. Groups that the int4 kernel
        does not take are multiplied in fp32 or bf16, and int8 products whose sums could exceed 32 bits in fp32.
        """
        self.bias = None if linear.bias is None else linear.bias.detach().contiguous()
        # Not in_features and out_features, which may be older than the matrix.
        self.width, self.depth = (linear.values if isinstance(linear, QuantizedLinear) else linear.weight).shape
        scales = sums = None
        group = 0
        self.precision = _precision_of(linear, precision, self.depth)
        match self.precision:
            case "int8":
                weight = linear.quantized if isinstance(linear, QuantizedLinear) else quantize_weight(linear.weight)
                self.weights, scales, sums = pack_int8(weight)
            case "int4":
                assert isinstance(linear, QuantizedLinear)
                self.weights, scales = pack_int4(linear.quantized)
                group = linear.quantized.group
            case "bf16":
                self.weights = _blocks(linear.weight.detach().to(torch.bfloat16), 2)
            case "fp32":
                self.weights = _blocks(linear.weight.detach(), 1)
        self.held = scales, sums
        addresses = (data_address(part) for part in (self.weights, self.bias, scales, sums))
        self.struct = MatrixStruct(*addresses, self.depth, self.width, group, _KINDS[self.precision])
        self.address = ctypes.addressof(self.struct)

    @property
    def quantizes(self) -> bool:
        """Whether its inputs are quantized."""
        return self.precision in ("int8", "int4")


def _precision_of(linear: nn.Linear | QuantizedLinear, wanted: WeightPrecision, depth: int) -> _Kind:
    if isinstance(linear, QuantizedLinear) and linear.bits == 4:
        return "int4" if fits_int4(linear.quantized) else "fp32" if wanted == "int8" else wanted
    if isinstance(linear, QuantizedLinear):
        wanted = "int8"
    return "fp32" if wanted == "int8" and depth > _MOST_INT8_DEPTH else wanted


def pack_int8(weight: QuantizedWeight) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks, a scale per output, and the sum of each output's integers."""
    assert weight.scales.shape[1] == 1, weight.scales.shape
    return _blocks(weight.values, 4), weight.scales[:, 0].contiguous(), weight.values.sum(dim=1, dtype=torch.int32)


def _blocks(weight: Tensor, together: int) -> Tensor:
    """(out, in) as (blocks, in / together, 64, together), with zeros beyond the last output and input."""
    padded = F.pad(weight, (0, -weight.shape[1] % together, 0, -weight.shape[0] % _BLOCK_COLUMNS))
    depth = padded.shape[1] // together
    return padded.view(-1, _BLOCK_COLUMNS, depth, together).transpose(1, 2).contiguous()


class KernelNorm:
    """A norm described to the kernel."""

    def __init__(self, norm: nn.Module | None) -> None:
        gain, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
        # Detached, so that the memory stays alive even if the module's parameters are replaced.
        self.gain, self.bias = (None if part is None else part.detach().contiguous() for part in (gain, bias))
        if norm is None:
            self.struct = NormStruct(None, None, 0.0, 0)
        else:
            assert isinstance(norm, nn.LayerNorm | RMSNorm)
            if self.gain is None:
                self.gain = torch.ones(norm.normalized_shape, dtype=torch.float32, device="cpu")
            kind = 2 if isinstance(norm, RMSNorm) else 1
            self.struct = NormStruct(data_address(self.gain), data_address(self.bias), norm.eps, kind)


def data_address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
