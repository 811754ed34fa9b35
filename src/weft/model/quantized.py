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
    """In the place of an `nn.Linear`. The input is quantized as well, to 8 bits."""

    values: Tensor
    scales: Tensor

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
        q, row_scales = quantize_rows(x.float())
        if self.bits == 4:
            return nn.functional.linear(q * row_scales, self.weight, self.bias).to(x.dtype)
        out = _integer_sums(q, self.values).float() * (row_scales * self.scales.T)
        return (out if self.bias is None else out + self.bias).to(x.dtype)


class QuantizedEmbedding(nn.Module):
    """In the place of an `nn.Embedding`: int8 with a scale per token."""

    values: Tensor
    scales: Tensor

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


_EXACT_DEPTH = 1024  # 127² · 1,024 < 2**24

QUANTIZED = (QuantizedLinear, QuantizedEmbedding)


def put_quantized(network: nn.Module, name: str, weight: QuantizedWeight) -> None:
    """Replace the linear layer or embedding `name`, and what is tied to it, by quantized ones."""

    def matrix(module: nn.Module) -> object:
        return module.values if isinstance(module, QUANTIZED) else getattr(module, "weight", None)

    shared = matrix(network.get_submodule(name))
    for place, module in list(network.named_modules()):
        if matrix(module) is not shared:
            continue
        if isinstance(module, nn.Linear | QuantizedLinear):
            network.set_submodule(place, QuantizedLinear(weight, module.bias).train(module.training))
        elif isinstance(module, nn.Embedding | QuantizedEmbedding):
            network.set_submodule(place, QuantizedEmbedding(weight).train(module.training))


def quantized_modules(network: nn.Module) -> dict[str, "QuantizedLinear | QuantizedEmbedding"]:
    """By name. A matrix that is tied is there under both names."""
    return {name: module for name, module in network.named_modules() if isinstance(module, QUANTIZED)}


def weight_bytes(network: nn.Module) -> int:
    """Of all weights: integers with their bits, scales and everything else as they are. Tied ones count once."""
    shared = {id(layer.values): layer.quantized for layer in quantized_modules(network).values()}
    integers = sum(weight.values.numel() * weight.bits // 8 + 4 * weight.scales.numel() for weight in shared.values())
    return integers + sum(weight.numel() * weight.element_size() for weight in network.parameters())


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x ≈ q · scale: q (rows, depth) of whole numbers from −127 to 127, in x's type; scale (rows, 1)."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    # Divided as the C kernels do: torch computes 127 / largest as 127 · (1 / largest), which rounds twice.
    inverse = torch.where(largest >= 1e-35, torch.full_like(largest, 127) / largest, torch.zeros_like(largest))
    return (x * inverse).round(), largest / 127


def _integer_sums(q: Tensor, values: Tensor) -> Tensor:
    """q · valuesᵀ, exactly. In floats, because torch's integer product takes only some shapes: the sums of 1,024
    products are below 2**24, so exact in fp32, and whole numbers are added up as such.
    """
    depth = values.shape[1]
    if depth <= _EXACT_DEPTH:
        return q @ values.to(q.dtype).T
    starts = range(0, depth, _EXACT_DEPTH)
    parts = (_integer_sums(q[..., at : at + _EXACT_DEPTH], values[:, at : at + _EXACT_DEPTH]) for at in starts)
    return torch.stack([part.long() for part in parts]).sum(0)


def quantize_weight(weight: Tensor) -> QuantizedWeight:
    """8 bits, with the largest weight of each row at ±127."""
    weight = weight.detach().float()
    scales = weight.abs().amax(dim=1, keepdim=True) / 127
    divisors = scales.clamp(min=torch.finfo(torch.float32).tiny)  # a row of zeros stays zero
    values = (weight / divisors).round_().clamp_(-127, 127).nan_to_num_(0).to(torch.int8)
    return QuantizedWeight(values, scales, 8)
