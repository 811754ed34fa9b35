"""Four position encodings.

Learned and sinusoidal positions are vectors added to the token embedding (see `embeddings`). Rotary positions rotate
queries and keys. Relative positions add a learned bias to the attention scores. Fixed tables are computed when needed
and never stored, so a state dict holds parameters only.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from weft.devices import widest_float


@dataclass(frozen=True)
class Learned:
    """A trained vector per position (BERT, GPT-2). RoBERTa's table starts at `offset` = padding id + 1."""

    size: int
    offset: int = 0
    kind: Literal["learned"] = "learned"


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed sines and cosines (Vaswani et al. 2017, section 3.5)."""

    size: int
    kind: Literal["sinusoidal"] = "sinusoidal"


@dataclass(frozen=True)
class Rotary:
    """Rotation by position (Su et al. 2021). `scaling` extends the context, as in Llama 3.1."""

    size: int
    theta: float = 10_000.0
    scaling: "LinearScaling | Llama3Scaling | None" = None
    kind: Literal["rotary"] = "rotary"


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023): every position is divided by `factor`."""

    factor: float
    kind: Literal["linear"] = "linear"

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"a position factor must be above 0, not {self.factor}")


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: low frequencies are divided by `factor`, high ones unchanged, those between interpolated."""

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


def make_table(rows: int, width: int) -> nn.Embedding:
    """On the meta device not initialized: torch's `normal_` imports torch._dynamo there, which takes 0.8 seconds."""
    if torch.empty(0).is_meta:
        return nn.Embedding(rows, width, _weight=torch.empty(rows, width))
    return nn.Embedding(rows, width)


def longest(positions: Positions | None) -> int | None:
    """The longest sequence these positions allow. None: no limit."""
    if positions is None or isinstance(positions, Relative):
        return None
    return positions.size - positions.offset if isinstance(positions, Learned) else positions.size


def sinusoid_table(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/W)), PE(p, 2i+1) = cos(…). (T,) -> (T, W).

    All sines come first, then all cosines, as in Marian: a permutation of the paper's interleaved columns.
    """
    exact = widest_float(positions.device)
    even = torch.arange(0, width, 2, dtype=exact, device=positions.device)
    angle = positions.unsqueeze(1).to(exact) / 10_000.0 ** (even / width)
    return torch.cat([angle.sin(), angle[:, : width // 2].cos()], dim=1).to(dtype)


def rotary_frequencies(rotary: Rotary, head_width: int, device: torch.device) -> Tensor:
    """θ_i = theta^(−2i/D), one per pair of columns; (D/2,)."""
    even = torch.arange(0, head_width, 2, dtype=torch.float32, device=device)
    frequency = 1.0 / rotary.theta ** (even / head_width)
    match rotary.scaling:
        case LinearScaling(factor=factor):
            return frequency / factor
        case Llama3Scaling(factor=factor, low=low, high=high, original_size=size):
            turns = size * frequency / (2 * math.pi)  # full rotations within the original context
            blend = ((turns - low) / (high - low)).clamp(0, 1)  # 0: divided by `factor`; 1: unchanged
            return frequency * ((1 - blend) / factor + blend)
        case _:
            return frequency


def rotary_table(rotary: Rotary, positions: Tensor, head_width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position · θ_i, each (T, 1, D), with two equal halves. All heads share them."""
    angle = positions.unsqueeze(1).float() * rotary_frequencies(rotary, head_width, positions.device)
    angle = torch.cat([angle, angle], dim=1).unsqueeze(1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x_THD: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) by its angle: (a cos − b sin, b cos + a sin)."""
    return _Rotate.apply(x_THD, *table) if torch.is_grad_enabled() else _rotated(x_THD, *table, 1.0)


class _Rotate(torch.autograd.Function):
    """Writes into the result directly: no copy by concatenation. The gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(upstream, cos, sin, -1.0), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    (a, b), (sin, _) = x.chunk(2, dim=-1), sin.chunk(2, dim=-1)
    rotated, half = x * cos, x.shape[-1] // 2
    rotated.narrow(-1, 0, half).addcmul_(b, sin, value=-sign)  # torch.export forbids in-place changes of chunks
    rotated.narrow(-1, half, half).addcmul_(a, sin, value=sign)
    return rotated


def relative_bucket(distance: Tensor, spec: Relative, *, both_ways: bool) -> Tensor:
    """The bucket of each distance (key − query). Small distances get a bucket each, larger ones share buckets on a log
    scale up to `spec.distance`.

    `both_ways` (encoder): half of the buckets for each direction. Otherwise (causal): earlier keys only.
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
    """The bias on attention scores, (H, L, L) for length L. All layers of a stack share it."""

    def __init__(self, spec: Relative, heads: int, *, both_ways: bool) -> None:
        super().__init__()
        self.spec, self.both_ways = spec, both_ways
        self.table = make_table(spec.buckets, heads)

    def forward(self, length: int) -> Tensor:
        index = torch.arange(length, device=self.table.weight.device)
        bucket = relative_bucket(index[None, :] - index[:, None], self.spec, both_ways=self.both_ways)
        bias_LLH = self.table(bucket)
        bias_HLL = bias_LLH.permute(2, 0, 1)
        if self.both_ways:
            return bias_HLL
        return bias_HLL.masked_fill(index[None, :] > index[:, None], -torch.inf)

    def of_last(self, length: int) -> Tensor:
        """The bias of the last of L tokens only: (H, L)."""
        behind = torch.arange(1 - length, 1, device=self.table.weight.device)
        return self.table(relative_bucket(behind, self.spec, both_ways=self.both_ways)).T.contiguous()
