"""A matrix to integers: symmetric, to nearest, with searched scales.

    q = clamp(round(w / s)),   s = r · max|w| / 127  (8 bits, a scale per row)
                               s = r · max|w| / 7    (4 bits, a scale per row and group of inputs)

r < 1 cuts the largest weights off and rounds all others more finely. The search takes the r with the smallest error
Σ m (w − s q)², where m is the mean square of the input that a weight multiplies (1 where it is unknown).
"""

import math

import torch
from torch import Tensor

from weft.model.quantized import QuantizedWeight

GROUP = 32
_SHARES = {8: torch.linspace(0.8, 1.0, 21), 4: torch.linspace(0.6, 1.0, 21)}  # of the largest weight
_TINY = 1e-30  # a group of zeros stays zero


def limits(bits: int) -> tuple[int, int]:
    """The smallest and the largest integer."""
    return (-127, 127) if bits == 8 else (-8, 7)


def group_size(inputs: int, wanted: int = GROUP) -> int:
    """The largest divisor of the inputs up to `wanted` that is a multiple of 8, which the int4 kernel needs; if there
    is none, an even one, since two values share a byte; otherwise 1.
    """
    for step in (8, 2):
        if found := [size for size in range(step, min(wanted, inputs) + 1, step) if inputs % size == 0]:
            return max(found)
    return 1


def round_to_nearest(
    weight: Tensor, bits: int, *, moments: Tensor | None = None, group: int | None = None
) -> QuantizedWeight:
    """`moments` (inputs,): mean squares of the inputs. `group`: 4 bits: inputs that share a scale."""
    weight = weight.detach().float()
    scales = search_scales(weight, bits, moments=moments, group=group)
    values = round_with(weight.unflatten(1, (scales.shape[1], -1)), scales[..., None], bits)
    return QuantizedWeight(values.flatten(1).to(torch.int8), scales, bits)


def search_scales(weight: Tensor, bits: int, *, moments: Tensor | None = None, group: int | None = None) -> Tensor:
    """(outputs, groups)"""
    inputs = weight.shape[1]
    size = inputs if bits == 8 else group or group_size(inputs)
    grouped = weight.unflatten(1, (inputs // size, size))
    importance = torch.ones(inputs) if moments is None else moments.float() + moments.float().mean() * 1e-3
    importance = importance.view(inputs // size, size)
    largest = grouped.abs().amax(dim=-1, keepdim=True)
    best, least = torch.zeros_like(largest), torch.full_like(largest, math.inf)
    for share in _SHARES[bits].tolist():
        scales = largest * (share / limits(bits)[1])
        if bits == 4:  # stored as bf16: a scale belongs to a few weights only
            scales = scales.bfloat16().float()
        errors = ((grouped - round_with(grouped, scales, bits) * scales).square() * importance).sum(-1, keepdim=True)
        best, least = torch.where(errors < least, scales, best), torch.minimum(errors, least)
    return best[..., 0].contiguous()


def round_with(weight: Tensor, scales: Tensor, bits: int) -> Tensor:
    """Whole numbers in the type of the weight."""
    return (weight / scales.clamp(min=_TINY)).round().clamp(*limits(bits))
