"""C kernels for generation, compiled on first use where there is a C compiler.

A step multiplies a few rows with every weight once, and reads every key and value once. torch's matrix product is made
for many rows: with 4 it reads memory at half of the possible speed, with 16 at less. `kernels.c` reads at full speed.
It is compiled once per machine (a second) and kept in the user's cache. A row's result is the same to the bit, however
many other rows there are: what is generated does not depend on what else is being served. The fallback without a
compiler is torch, whose products round differently for different numbers of rows.
"""

import functools
from ctypes import c_int, c_int64, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from weft.compiled import Kernel, load_tried, open_library, threads
from weft.inference.matrices import KernelMatrix, WeightPrecision

_KERNEL_SOURCE = Path(__file__).with_name("kernels.c")
PAGE_TOKENS = 16  # as in lanes.h


class GenerationKernels(NamedTuple):
    multiply: Kernel
    run: Kernel
    store: Kernel
    cell: Kernel
    quantized_bytes: Kernel


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
    return _multiplies_as_torch(kernels, "fp32")


def _multiplies_int8(kernels: GenerationKernels) -> bool:
    return _multiplies_as_torch(kernels, "int8")


def _multiplies_as_torch(kernels: GenerationKernels, precision: WeightPrecision) -> bool:
    """Check 1 to 14 rows, and a width that does not fill its blocks."""
    chance = torch.Generator().manual_seed(0)
    linear = nn.Linear(37, 70, device="meta")  # not initialized: that would use up random numbers of the caller
    with torch.no_grad():
        for name, shape in (("weight", (70, 37)), ("bias", (70,))):
            setattr(linear, name, nn.Parameter(torch.randn(shape, generator=chance, dtype=torch.float32)))
        matrix = KernelMatrix(linear, precision)
        for rows in range(1, 15):
            x = torch.randn(rows, 37, generator=chance, dtype=torch.float32)
            out = torch.ones(rows, 70, dtype=torch.float32)
            scratch = torch.empty(kernels.quantized_bytes(rows, 37), dtype=torch.uint8)
            kernels.multiply(matrix.address, x.data_ptr(), out.data_ptr(), rows, 1, scratch.data_ptr(), threads(2))
            if not torch.allclose(out, linear(x) + 1, atol=0.5 if precision == "int8" else 1e-4):
                return False
    return True
