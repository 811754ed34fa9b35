"""Normalisation of each token's vector.

LayerNorm (Ba et al. 2016):   y = (x − mean x) / √(var x + ε) · g + b
RMSNorm (Zhang & Sennrich 2019):   y = x / √(mean x² + ε) · g

torch has one CPU kernel for the first, and puts the second together from a dozen passes over memory, forward and
backward. Written out with its own gradient it takes half of them.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


@dataclass(frozen=True)
class NormSpec:
    kind: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    bias: bool = True  # LayerNorm only; RMSNorm has none


def make_norm(spec: NormSpec, width: int) -> nn.Module:
    if spec.kind == "rms":
        return RMSNorm(width, eps=spec.epsilon)
    return nn.LayerNorm(width, eps=spec.epsilon, bias=spec.bias)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return _RMSNorm.apply(x, self.weight, self.eps)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        scale = mean_square.add_(epsilon).rsqrt_()  # 1 / √(mean x² + ε)
        normal = x * scale
        ctx.save_for_backward(normal, gain, scale)
        return normal * gain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        """With n = x · scale and u = ∂L/∂y · g:   ∂L/∂x = scale · (u − n · mean(u n)),   ∂L/∂g = Σ ∂L/∂y · n."""
        normal, gain, scale = ctx.saved_tensors
        along = upstream * normal
        gain_gradient = along.flatten(0, -2).sum(0)
        shared = (along @ gain).div_(normal.shape[-1]).unsqueeze_(-1)
        return (upstream * gain).addcmul_(normal, shared, value=-1).mul_(scale), gain_gradient, None
