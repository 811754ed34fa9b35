"""Normalisation of each token's vector.

LayerNorm (Ba et al. 2016):   y = (x − mean x) / √(var x + ε) · g + b
RMSNorm (Zhang & Sennrich 2019):   y = x / √(mean x² + ε) · g
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn


@dataclass(frozen=True)
class NormSpec:
    kind: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    bias: bool = True  # LayerNorm only; RMSNorm has none


def make_norm(spec: NormSpec, width: int) -> nn.Module:
    if spec.kind == "rms":
        return nn.RMSNorm(width, eps=spec.epsilon)
    return nn.LayerNorm(width, eps=spec.epsilon, bias=spec.bias)
