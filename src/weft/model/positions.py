"""Where a token stands: four ways to tell the model.

Learned and sinusoidal positions are vectors added to the token embedding (see `embeddings`). Rotary positions turn
queries and keys; relative positions add a learned bias to the attention scores. Tables are computed when they are
used and never stored: a model's weights are exactly its parameters.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Learned:
    """A trained vector per position (BERT, GPT-2). RoBERTa's table starts at `offset` = padding id + 1."""

    size: int
    offset: int = 0
    kind: Literal["learned"] = "learned"


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed waves (Vaswani et al. 2017, section 3.5)."""

    size: int
    kind: Literal["sinusoidal"] = "sinusoidal"


@dataclass(frozen=True)
class Rotary:
    """Rotation by position (Su et al. 2021). `scaling` stretches the context, as Llama 3.1 does."""

    size: int
    theta: float = 10_000.0
    scaling: "LinearScaling | Llama3Scaling | None" = None
    kind: Literal["rotary"] = "rotary"


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023): every position counts as position / factor."""

    factor: float
    kind: Literal["linear"] = "linear"

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"a position factor must be above 0, not {self.factor}")


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretch: slow waves are divided by `factor`, fast ones kept, those between blended."""

    factor: float
    low: float
    high: float
    original_size: int
    kind: Literal["llama3"] = "llama3"


@dataclass(frozen=True)
class Relative:
    """A bias per head and bucketed distance (Raffel et al. 2020, section 2.1). No limit on length."""

    buckets: int = 32
    distance: int = 128
    kind: Literal["relative"] = "relative"


Positions = Learned | Sinusoidal | Rotary | Relative


def longest(positions: Positions | None) -> int | None:
    """The longest sequence these positions can describe; none if there is no limit."""
    if positions is None or isinstance(positions, Relative):
        return None
    return positions.size - positions.offset if isinstance(positions, Learned) else positions.size


def sinusoid_table(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/W)), PE(p, 2i+1) = cos(…), the sines first and then the cosines, as Marian lays
    them out (a permutation of the paper's interleaved columns). (T,) -> (T, W).
    """
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angle = positions[:, None].double() / 10_000.0 ** (even / width)
    return torch.cat([angle.sin(), angle[:, : width // 2].cos()], dim=1).to(dtype)


def rotary_frequencies(rotary: Rotary, head_width: int, device: torch.device) -> Tensor:
    """θ_i = theta^(−2i/D), one per pair of columns; (D/2,)."""
    even = torch.arange(0, head_width, 2, dtype=torch.float32, device=device)
    frequency = 1.0 / rotary.theta ** (even / head_width)
    match rotary.scaling:
        case LinearScaling(factor=factor):
            return frequency / factor
        case Llama3Scaling(factor=factor, low=low, high=high, original_size=size):
            turns = size * frequency / (2 * math.pi)  # how often the wave turns within the original context
            blend = ((turns - low) / (high - low)).clamp(0, 1)  # 0: slow wave, stretched; 1: fast wave, kept
            return frequency * ((1 - blend) / factor + blend)
        case _:
            return frequency


def rotary_table(rotary: Rotary, positions: Tensor, head_width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position · θ_i, each (T, 1, D) with the two halves alike, to be shared by all heads."""
    angle = positions.unsqueeze(1).float() * rotary_frequencies(rotary, head_width, positions.device)
    angle = torch.cat([angle, angle], dim=1).unsqueeze(1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x_THD: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (x_i, x_{i+D/2}) by its angle: (a cos − b sin, b cos + a sin)."""
    return _Rotate.apply(x_THD, *table) if torch.is_grad_enabled() else _turn(x_THD, *table, 1.0)


class _Rotate(torch.autograd.Function):
    """Straight into the result, without the copy that a concatenation makes; the gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(upstream, cos, sin, -1.0), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    (a, b), (sin, _) = x.chunk(2, dim=-1), sin.chunk(2, dim=-1)
    turned, half = x * cos, x.shape[-1] // 2
    turned.narrow(-1, 0, half).addcmul_(b, sin, value=-sign)  # chunks may not be changed in an exported program
    turned.narrow(-1, half, half).addcmul_(a, sin, value=sign)
    return turned


def relative_bucket(distance: Tensor, spec: Relative, *, both_ways: bool) -> Tensor:
    """Small distances (key − query) get a bucket each, larger ones share buckets on a log scale up to `spec.distance`.

    Both ways (encoder): half of the buckets for each direction. One way (causal): keys behind the query only.
    """
    buckets, base = spec.buckets, torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        base = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(spec.distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return base + torch.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
    """The table of one stack, shared by its layers: length L -> bias (H, L, L) to add to the attention scores."""

    def __init__(self, spec: Relative, heads: int, *, both_ways: bool) -> None:
        super().__init__()
        self.spec, self.both_ways = spec, both_ways
        self.table = nn.Embedding(spec.buckets, heads)

    def forward(self, length: int) -> Tensor:
        place = torch.arange(length, device=self.table.weight.device)
        bucket = relative_bucket(place[None, :] - place[:, None], self.spec, both_ways=self.both_ways)
        bias_LLH = self.table(bucket)
        bias_HLL = bias_LLH.permute(2, 0, 1)
        if self.both_ways:
            return bias_HLL
        return bias_HLL.masked_fill(place[None, :] > place[:, None], -torch.inf)

    def of_last(self, length: int) -> Tensor:
        """The last row of it, what the newest of L tokens adds to its scores of all: (H, L)."""
        behind = torch.arange(1 - length, 1, device=self.table.weight.device)
        return self.table(relative_bucket(behind, self.spec, both_ways=self.both_ways)).T.contiguous()
