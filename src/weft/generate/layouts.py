"""How a weight matrix is stored for products with a few rows.

A step multiplies a few rows with every weight of the model once, so its time is that of reading the weights from
memory. On a CPU three layouts help:

    blocked      for the C kernels, where there is a compiler
    transposed   stored as (in, out). From torch's (out, in) MKL is two to three times slower at 16 rows, and three
                 times for a vocabulary of 16,000 at 4 rows.
    int8         weights from −127 to 127 with a scale per output, a quarter of the bytes; inputs are quantized
                 dynamically, with one scale for the whole batch. So with int8, and only there, a row's result depends
                 slightly on the other rows.
"""

import warnings
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.compiled import Kernel, threads
from weft.generate.kernels import BLOCK_COLUMNS, MOST_ROWS, load_generation_kernels


class Layout(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x W + b"""

    def add_to(self, sum_: Tensor, x: Tensor) -> Tensor:
        """sum_ + x W + b, in place."""


class TransposedLayout:
    def __init__(self, linear: nn.Linear) -> None:
        self.columns, self.bias = linear.weight.detach().T.contiguous(), linear.bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.columns if self.bias is None else torch.addmm(self.bias, x, self.columns)

    def add_to(self, sum_: Tensor, x: Tensor) -> Tensor:
        return (sum_ if self.bias is None else sum_.add_(self.bias)).addmm_(x, self.columns)


class BlockedLayout:
    def __init__(self, linear: nn.Linear, kernel: Kernel) -> None:
        self.kernel = kernel
        self.weight, self.bias = linear.weight.detach(), None if linear.bias is None else linear.bias.detach()
        self.width, self.depth = self.weight.shape
        padded = F.pad(self.weight, (0, 0, 0, -self.width % BLOCK_COLUMNS))
        self.blocks = padded.view(-1, BLOCK_COLUMNS, self.depth).transpose(1, 2).contiguous()
        self.addresses = self.blocks.data_ptr(), None if self.bias is None else self.bias.data_ptr()

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows > MOST_ROWS or x.dtype is not torch.float32:
            return F.linear(x, self.weight, self.bias)
        return self._multiply(x, x.new_empty(rows, self.width), 0)

    def add_to(self, sum_: Tensor, x: Tensor) -> Tensor:
        if x.shape[0] > MOST_ROWS or x.dtype is not torch.float32:
            return sum_.add_(F.linear(x, self.weight, self.bias))
        return self._multiply(x, sum_, 1)

    def _multiply(self, x: Tensor, out: Tensor, add: int) -> Tensor:
        x, (matrix, bias) = x.contiguous(), self.addresses
        shape = x.shape[0], self.depth, self.width
        self.kernel(x.data_ptr(), matrix, bias, out.data_ptr(), *shape, add, threads())
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

    def add_to(self, sum_: Tensor, x: Tensor) -> Tensor:
        return sum_.add_(self(x))


class LaidOutLinear(nn.Module):
    """A drop-in replacement for a linear layer."""

    def __init__(self, linear: nn.Linear, *, int8: bool) -> None:
        super().__init__()
        self.layout = layout_of(linear, int8=int8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layout(x)


def layout_of(linear: nn.Linear, *, int8: bool) -> Layout:
    if int8:
        return Int8Layout(linear)
    kernels = load_generation_kernels() if linear.weight.dtype == torch.float32 else None
    return TransposedLayout(linear) if kernels is None else BlockedLayout(linear, kernels.multiply)
