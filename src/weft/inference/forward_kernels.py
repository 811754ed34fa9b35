"""The C kernels of the forward pass, compiled on first use where there is a C compiler."""

from ctypes import c_int, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from weft.compiled import Kernel, open_library, threads
from weft.inference.matrices import KernelMatrix

_SOURCE = Path(__file__).with_name("forward.c")


class ForwardKernels(NamedTuple):
    forward: Kernel
    product: Kernel
    given_bytes: Kernel
    room_bytes: Kernel
    has_bfloat: Kernel
    sample: Kernel


def open_forward_kernels() -> ForwardKernels:
    found = open_library(_SOURCE)
    kernels = ForwardKernels(*(getattr(found, f"weft_{name}") for name in ForwardKernels._fields))
    kernels.forward.argtypes = [*[c_void_p] * 4, c_int64]
    kernels.forward.restype = c_int
    kernels.product.argtypes = [*[c_void_p] * 3, c_int64, c_void_p, c_int]
    kernels.product.restype = None
    kernels.given_bytes.argtypes = [c_int64, c_int64]
    kernels.given_bytes.restype = c_int64
    kernels.room_bytes.argtypes = [c_void_p, *[c_int64] * 3, c_int]
    kernels.room_bytes.restype = c_int64
    kernels.has_bfloat.argtypes = []
    kernels.has_bfloat.restype = c_int
    kernels.sample.argtypes = [c_void_p, c_void_p, c_int64]
    kernels.sample.restype = c_uint64
    return kernels


def multiply_rows(kernels: ForwardKernels, matrix: KernelMatrix, x: Tensor) -> Tensor:
    """x W + b; x (rows, depth) fp32."""
    x = x.contiguous()
    out = torch.empty(len(x), matrix.width, dtype=torch.float32, device="cpu")
    memory = torch.empty(kernels.given_bytes(len(x), matrix.depth), dtype=torch.uint8, device="cpu")
    addresses = matrix.address, x.data_ptr(), out.data_ptr()
    kernels.product(*addresses, len(x), memory.data_ptr(), threads())
    return out
