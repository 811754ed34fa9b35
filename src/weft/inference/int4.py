"""Weights of 4 bits in the order in which `int4.h` reads them."""

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.quantized import QuantizedWeight

_COLUMNS, _EIGHT = 64, 8  # as in int4.h


def fits_int4(weight: QuantizedWeight) -> bool:
    """Whether the kernel takes it: 4 bits in groups of a multiple of 8."""
    return weight.bits == 4 and weight.group % _EIGHT == 0


def pack_int4(weight: QuantizedWeight) -> tuple[Tensor, Tensor]:
    """Blocks of 64 outputs in which two fours of inputs share 4 bytes, and the scales of each block."""
    outputs, inputs = weight.values.shape
    raised = F.pad(weight.values + 8, (0, 0, 0, -outputs % _COLUMNS), value=8).to(torch.uint8)
    first, second = raised.view(-1, _COLUMNS, inputs // _EIGHT, 2, 4).unbind(dim=3)
    blocks = (first | second << 4).transpose(1, 2).contiguous()
    scales = F.pad(weight.scales, (0, 0, 0, -outputs % _COLUMNS))
    return blocks, scales.view(-1, _COLUMNS, scales.shape[1]).transpose(1, 2).contiguous()
