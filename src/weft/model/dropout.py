"""Dropout (Srivastava et al. 2014): each number is zeroed with probability p, the rest grow by 1 / (1 − p).

torch draws a whole random float per number on CPU, which costs a quarter of a small model's training step. Sixteen
bits are enough to decide, so four decisions come from each 64-bit draw: three times faster, p exact to 1/65536. The
bits come from torch's own generator, so seeding works as everywhere.
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
    """What to multiply by: 0 with probability p, else 1 / (1 − p)."""
    size = shape.numel()
    bits = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:size]
    keep = torch.empty(size, dtype=dtype)
    torch.ge(bits, round(p * 2**16) - 2**15, out=keep)  # 0.8 ms for 3 million; by way of booleans 2.2
    return keep.mul_(1 / (1 - p)).view(shape)
