"""C kernels for generation, compiled on first use where there is a C compiler.

A step multiplies a few rows with every weight once, and reads every key and value once. torch's matrix product is made
for many rows: with 4 it reads memory at half of the possible speed, with 16 at less. `kernels.c` reads at full speed.
It is compiled once per machine (a second) and kept in the user's cache. A row's result is the same to the bit, however
many other rows there are: what is generated does not depend on what else is being served. The fallback without a
compiler is torch, whose products round differently for different numbers of rows.
"""

import ctypes
import functools
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.compiled import Kernel, load_tried, open_library, threads
from weft.model.norm import RMSNorm

_KERNEL_SOURCE = Path(__file__).with_name("kernels.c")
_BLOCK_COLUMNS = 64  # as in product.h and int8.h
PAGE_TOKENS = 16  # as in lanes.h


class GenerationKernels(NamedTuple):
    multiply: Kernel
    run: Kernel
    store: Kernel
    cell: Kernel
    quantized_bytes: Kernel


class MatrixStruct(ctypes.Structure):
    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("sums", c_void_p),
        ("depth", c_int64),
        ("width", c_int64),
        ("is_int8", c_int),
    )


class NormStruct(ctypes.Structure):
    _fields_ = (("gain", c_void_p), ("bias", c_void_p), ("epsilon", c_float), ("kind", c_int))


class KernelMatrix:
    """A linear layer's weights in the order in which the kernel reads them, as fp32 or int8.

    int8: weights from −127 to 127 with a scale per output, a quarter of the bytes. Inputs are quantized when they are
    multiplied, with a scale per row.
    """

    def __init__(self, linear: nn.Linear, *, int8: bool) -> None:
        weight, bias = linear.weight.detach(), linear.bias
        self.bias = None if bias is None else bias.detach().contiguous()
        self.width, self.depth = weight.shape
        scales = sums = None
        if int8:
            self.weights, scales, sums = pack_int8(weight)
        else:
            padded = F.pad(weight, (0, 0, 0, -self.width % _BLOCK_COLUMNS))
            self.weights = padded.view(-1, _BLOCK_COLUMNS, self.depth).transpose(1, 2).contiguous()
        self.held = scales, sums
        addresses = (data_address(part) for part in (self.weights, self.bias, scales, sums))
        self.struct = MatrixStruct(*addresses, self.depth, self.width, int8)
        self.address = ctypes.addressof(self.struct)
        self.is_int8 = int8


def pack_int8(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(out, in) as blocks of 64 outputs in which the weights of 4 inputs lie side by side, a scale per output, and the
    sum of each output's int8 weights.
    """
    scales = weight.float().abs().amax(dim=1) / 127
    divisors = scales.clamp(min=torch.finfo(torch.float32).tiny)  # a row of zeros stays zero
    rounded = (weight.float() / divisors[:, None]).round_().clamp_(-127, 127).nan_to_num_(0).to(torch.int8)
    padded = F.pad(rounded, (0, -weight.shape[1] % 4, 0, -weight.shape[0] % _BLOCK_COLUMNS))
    blocks = padded.view(-1, _BLOCK_COLUMNS, padded.shape[1] // 4, 4).transpose(1, 2).contiguous()
    return blocks, scales, rounded.sum(dim=1, dtype=torch.int32)


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
                self.gain = torch.ones(norm.normalized_shape, dtype=torch.float32)
            kind = 2 if isinstance(norm, RMSNorm) else 1
            self.struct = NormStruct(data_address(self.gain), data_address(self.bias), norm.eps, kind)


def data_address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@functools.cache
def load_generation_kernels() -> GenerationKernels | None:
    return load_tried("generation", _open, (_multiplies, _multiplies_int8))


def _open() -> GenerationKernels:
    found = open_library(_KERNEL_SOURCE)
    kernels = GenerationKernels(*(getattr(found, f"weft_{name}") for name in GenerationKernels._fields))
    pointer, number, flag = c_void_p, c_int64, c_int
    kernels.multiply.argtypes = [pointer, pointer, pointer, number, flag, pointer, flag]
    kernels.run.argtypes = [pointer, number, pointer, pointer, pointer]
    kernels.store.argtypes = [*[pointer] * 3, number, pointer, *[number] * 4, flag]
    kernels.cell.argtypes = [*[pointer] * 3, number, number]
    kernels.quantized_bytes.argtypes = [number, number]
    for kernel in kernels:
        kernel.restype = None
    kernels.quantized_bytes.restype = number
    return kernels


def _multiplies(kernels: GenerationKernels) -> bool:
    return _multiplies_as_torch(kernels, int8=False)


def _multiplies_int8(kernels: GenerationKernels) -> bool:
    return _multiplies_as_torch(kernels, int8=True)


def _multiplies_as_torch(kernels: GenerationKernels, *, int8: bool) -> bool:
    """Check 1 to 14 rows, and a width that does not fill its blocks."""
    chance = torch.Generator().manual_seed(0)
    linear = nn.Linear(37, 70, device="meta")  # not initialized: that would use up random numbers of the caller
    with torch.no_grad():
        for name, shape in (("weight", (70, 37)), ("bias", (70,))):
            setattr(linear, name, nn.Parameter(torch.randn(shape, generator=chance, dtype=torch.float32)))
        matrix = KernelMatrix(linear, int8=int8)
        for rows in range(1, 15):
            x = torch.randn(rows, 37, generator=chance, dtype=torch.float32)
            out = torch.ones(rows, 70, dtype=torch.float32)
            scratch = torch.empty(kernels.quantized_bytes(rows, 37), dtype=torch.uint8)
            kernels.multiply(matrix.address, x.data_ptr(), out.data_ptr(), rows, 1, scratch.data_ptr(), threads(2))
            if not torch.allclose(out, linear(x) + 1, atol=0.5 if int8 else 1e-4):
                return False
    return True
