"""GPTQ (Frantar et al. 2023): rounding that makes up for its own errors.

The error of a layer is ‖(W − Ŵ) X‖², a quadratic form with the Hessian H = X Xᵀ. Columns are rounded one by one. The
error of a column is spread over the columns that are not rounded yet, by the rows of the Cholesky factor of H⁻¹:

    e_j = (w_j − ŵ_j) / U_jj,   W_:,j+1… −= e_j U_j,j+1…,   H⁻¹ = Uᵀ U

Scales of all groups are fixed first, from the original weights. So the columns can be taken in the order of falling
H_jj ("act-order"), where the inputs that matter most are rounded while all others can still make up for it, and groups
stay contiguous.
"""

import torch
from torch import Tensor

from weft.compress.quantize.rounding import round_with, search_scales
from weft.model.quantized import QuantizedWeight

_BLOCK = 128  # columns; the updates of later columns are collected over a block
_DAMPING = 0.01  # of the mean of H's diagonal


def round_gptq(weight: Tensor, hessian: Tensor, bits: int = 4, *, group: int | None = None) -> QuantizedWeight:
    """`hessian` (inputs, inputs): the sum of x xᵀ over the layer's inputs."""
    hessian = hessian.double().clone()
    diagonal = hessian.diagonal()
    moments = diagonal.clone()
    unused = diagonal == 0
    diagonal[unused] = 1
    scales = search_scales(weight.detach().float(), bits, moments=moments, group=group)
    spread = scales.repeat_interleave(weight.shape[1] // scales.shape[1], dim=1).double()
    order = diagonal.argsort(descending=True, stable=True)
    remaining = weight.detach().double()
    remaining[:, unused] = 0
    values = _round_columns(remaining[:, order], _factor(hessian[order][:, order]), spread[:, order], bits)
    return QuantizedWeight(values[:, order.argsort()].to(torch.int8), scales, bits)


def _factor(hessian: Tensor) -> Tensor:
    """U, upper triangular, with H⁻¹ = Uᵀ U; damped until H is positive definite."""
    damping = _DAMPING * hessian.diagonal().mean()
    while True:
        hessian.diagonal().add_(damping)
        lower, failed = torch.linalg.cholesky_ex(hessian)
        if not failed:
            return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
        damping = damping * 10


def _round_columns(remaining: Tensor, factor: Tensor, scales: Tensor, bits: int) -> Tensor:
    values = torch.empty_like(remaining)
    for begin in range(0, remaining.shape[1], _BLOCK):
        end = min(begin + _BLOCK, remaining.shape[1])
        errors = torch.empty_like(remaining[:, begin:end])
        for column in range(begin, end):
            values[:, column] = round_with(remaining[:, column], scales[:, column], bits)
            error = remaining[:, column] - values[:, column] * scales[:, column]
            errors[:, column - begin] = error / factor[column, column]
            remaining[:, column:end] -= errors[:, column - begin, None] * factor[column, column:end]
        remaining[:, end:] -= errors @ factor[begin:end, end:]
    return values
