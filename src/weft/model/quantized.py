"""Matrices stored as small integers with scales: W ≈ values · scale.

    8 bits   values from −127 to 127, one scale per output (a row of the matrix)
    4 bits   values from −8 to 7, one scale per output and group of neighbouring inputs

A product quantizes its input as well, with one scale per row of x: x ≈ q · row scale, q from −127 to 127. The sums of
q · values are whole numbers, so they do not depend on the processor, on threads or on the order of the sum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class QuantizedWeight:
    """`values` (outputs, inputs) int8, whatever the number of bits; `scales` (outputs, groups) fp32."""

    values: Tensor
    scales: Tensor
    bits: int

    def __post_init__(self) -> None:
        assert self.values.dtype == torch.int8, self.values.dtype
        assert self.scales.dtype == torch.float32, self.scales.dtype
        assert self.scales.dim() == 2 and len(self.scales) == len(self.values), self.scales.shape
        assert self.values.shape[1] % self.scales.shape[1] == 0, (self.values.shape, self.scales.shape)

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.values.shape[1] // self.scales.shape[1]

    def dequantized(self) -> Tensor:
        return (self.values.unflatten(1, (-1, self.group)) * self.scales[..., None]).flatten(1)


class QuantizedLinear(nn.Module):
    """In the place of an `nn.Linear`. With one scale per output the input is quantized, too; in groups it is not."""

    def __init__(self, weight: QuantizedWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.bits = weight.bits
        self.out_features, self.in_features = weight.values.shape
        # Buffers, not parameters: they are not trained, and parameters tell the precision of everything else.
        self.register_buffer("values", weight.values)
        self.register_buffer("scales", weight.scales)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def quantized(self) -> QuantizedWeight:
        return QuantizedWeight(self.values, self.scales, self.bits)

    @property
    def weight(self) -> Tensor:
        """The matrix in fp32, computed anew each time."""
        return self.quantized.dequantized()

    def forward(self, x: Tensor) -> Tensor:
        if self.scales.shape[1] > 1:
            return nn.functional.linear(x, self.weight.to(x.dtype), self.bias)
        q, row_scales = quantize_rows(x.float())
        # In float64, because torch's integer product takes only some shapes; these sums are exact below 2**53.
        sums = q.double() @ self.values.double().T
        out = sums.float() * (row_scales * self.scales.T)
        return (out if self.bias is None else out + self.bias).to(x.dtype)


class QuantizedEmbedding(nn.Module):
    """In the place of an `nn.Embedding`: int8 with a scale per token."""

    def __init__(self, weight: QuantizedWeight) -> None:
        super().__init__()
        assert weight.scales.shape[1] == 1
        self.num_embeddings, self.embedding_dim = weight.values.shape
        self.register_buffer("values", weight.values)
        self.register_buffer("scales", weight.scales)

    @property
    def quantized(self) -> QuantizedWeight:
        return QuantizedWeight(self.values, self.scales, 8)

    @property
    def weight(self) -> Tensor:
        """The table in fp32, computed anew each time."""
        return self.quantized.dequantized()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.values[tokens] * self.scales[tokens]


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x ≈ q · scale: q (rows, depth) of whole numbers from −127 to 127, in x's type; scale (rows, 1)."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    inverse = torch.where(largest >= 1e-35, 127 / largest, torch.zeros_like(largest))
    return (x * inverse).round(), largest / 127


def quantize_weight(weight: Tensor) -> QuantizedWeight:
    """8 bits, with the largest weight of each row at ±127."""
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1, keepdim=True) / 127
    divisors = scales.clamp(min=torch.finfo(torch.float32).tiny)  # a row of zeros stays zero
    values = (weight / divisors).round_().clamp_(-127, 127).nan_to_num_(0).to(torch.int8)
    return QuantizedWeight(values, scales, 8)
