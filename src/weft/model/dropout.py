"""Dropout (Srivastava et al. 2014): each element is zeroed with probability p, the others are divided by 1 − p.

On CPU torch draws one random float per element, which takes a quarter of a small model's training step. Here each
64-bit draw decides four elements by 16 bits each: three times faster, p exact to 1/65536. The bits come from torch's
default generator, so `torch.manual_seed` applies.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training and self.p else x


def drop(x: Tensor, p: float) -> Tensor:
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * dropout_mask(x.shape, p, x.dtype)


def dropout_mask(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """The dropout mask: 0 with probability p, else 1 / (1 − p)."""
    size = shape.numel()
    bits = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:size]
    keep = torch.empty(size, dtype=dtype)
    torch.ge(bits, round(p * 2**16) - 2**15, out=keep)  # 0.8 ms for 3 million elements; through a boolean tensor 2.2 ms
    return keep.mul_(1 / (1 - p)).view(shape)
