"""How a weight matrix is stored for products with a few rows.

A step multiplies a few rows with every weight of the model once, so its time is that of reading the weights from
memory. On a CPU three layouts help:

    kernel       for the C kernels, where there is a compiler: fp32 or int8 (`kernels.KernelMatrix`). A row's result
                 does not depend on the other rows.
    transposed   stored as (in, out). From torch's (out, in) MKL is two to three times slower at 16 rows, and three
                 times for a vocabulary of 16,000 at 4 rows.
    int8         torch's int8 products, without a compiler. Inputs are quantized with one scale for the whole batch, so
                 a row's result depends slightly on the other rows.
"""

import warnings
from typing import Protocol

import torch
from torch import Tensor, nn

from weft.compiled import threads
from weft.generate.kernels import GenerationKernels, load_generation_kernels
from weft.inference.matrices import KernelMatrix
from weft.model.quantized import QuantizedLinear


class Layout(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x W + b"""


class TransposedLayout:
    def __init__(self, linear: nn.Linear) -> None:
        self.columns, self.bias = linear.weight.detach().T.contiguous(), linear.bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.columns if self.bias is None else torch.addmm(self.bias, x, self.columns)


class KernelLayout:
    def __init__(self, matrix: KernelMatrix, kernels: GenerationKernels) -> None:
        self.matrix, self.kernels = matrix, kernels

    def __call__(self, x: Tensor) -> Tensor:
        x, matrix = x.contiguous().float(), self.matrix
        rows, scratch = len(x), None
        out = x.new_empty(rows, matrix.width)
        if matrix.quantizes:
            scratch = torch.empty(self.kernels.quantized_bytes(rows, matrix.depth), dtype=torch.uint8)
        at = None if scratch is None else scratch.data_ptr()
        self.kernels.multiply(matrix.address, x.data_ptr(), out.data_ptr(), rows, 0, at, threads())
        return out


class Int8Layout:
    def __init__(self, linear: nn.Linear) -> None:
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_(min=1e-12) / 127
        zero = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that these names will move
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            bias = None if linear.bias is None else linear.bias.detach().float()
            self.packed = torch.ops.quantized.linear_prepack(rounded, bias)
        # Without VNNI the sum of two int8 products overflows 16 bits; with 7-bit inputs it does not.
        self.narrow = not torch.cpu._is_vnni_supported()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x.float(), self.packed, self.narrow).to(x.dtype)


class LaidOutLinear(nn.Module):
    """A drop-in replacement for a linear layer, for inputs (rows, depth)."""

    def __init__(self, linear: nn.Linear | QuantizedLinear, *, int8: bool) -> None:
        super().__init__()
        self.layout = layout_of(linear, int8=int8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layout(x)


def layout_of(linear: nn.Linear | QuantizedLinear, *, int8: bool) -> Layout:
    is_stored = isinstance(linear, QuantizedLinear)
    has_kernels = (linear.values if is_stored else linear.weight).device.type == "cpu"
    has_kernels = has_kernels and (is_stored or linear.weight.dtype == torch.float32)
    kernels = load_generation_kernels() if has_kernels else None
    if kernels is not None:
        return KernelLayout(KernelMatrix(linear, "int8" if int8 else "fp32"), kernels)
    if isinstance(linear, QuantizedLinear):
        return linear
    return Int8Layout(linear) if int8 else TransposedLayout(linear)
