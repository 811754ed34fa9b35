"""Normalisation of each token's hidden state.

LayerNorm (Ba et al. 2016):   y = (x − mean x) / √(var x + ε) · g + b
RMSNorm (Zhang & Sennrich 2019):   y = x / √(mean x² + ε) · g
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from weft.model.fused_layers import Norm, rms_norm


@dataclass(frozen=True)
class NormSpec:
    kind: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    bias: bool = True  # LayerNorm only; RMSNorm has none


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        assert self.eps is not None
        return rms_norm(x, self.weight, self.eps)


def make_norm(spec: NormSpec, width: int) -> Norm:
    if spec.kind == "rms":
        return RMSNorm(width, eps=spec.epsilon)
    return nn.LayerNorm(width, eps=spec.epsilon, bias=spec.bias)
