"""The position-wise network: every token's vector through two matrices and a bend between them.

plain (Vaswani et al. 2017, section 3.3):   FFN(x) = f(x W₁ + b₁) W₂ + b₂
gated (Shazeer 2020):                       FFN(x) = (f(x W₁) ⊙ x V) W₂     with f = SiLU it is SwiGLU

W₁ and V are one matrix `up` (f's half first), so that a gated layer is still two multiplications.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module

from weft.model.dropout import Dropout
from weft.model.fused_layers import gate

Activation = Literal["gelu", "gelu-tanh", "relu", "relu-squared", "silu", "tanh"]


@dataclass(frozen=True)
class FeedForwardSpec:
    inner: int
    activation: Activation = "gelu"
    gated: bool = False
    bias: bool = True
    dropout: float = 0.0  # inside, after the activation


class FeedForward(nn.Module):
    def __init__(self, spec: FeedForwardSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.up = nn.Linear(width, spec.inner * (2 if spec.gated else 1), bias=spec.bias)
        self.down = nn.Linear(spec.inner, width, bias=spec.bias)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x_TW: Tensor) -> Tensor:
        activation = activate if _is_watched(self.up) else activate_in_place
        return self.down(self.dropout(self.apply_activation(self.up(x_TW), activation)))

    def apply_activation(self, x: Tensor, activation: Callable[[Tensor, Activation], Tensor]) -> Tensor:
        """What happens between the matrices."""
        if not self.spec.gated:
            return activation(x, self.spec.activation)
        if self.spec.activation == "silu":
            return gate(x)
        bent, linear = x.chunk(2, dim=-1)
        return activation(bent, self.spec.activation) * linear


def _is_watched(layer: nn.Module) -> bool:
    """Whether a hook may have kept what this layer gave. Layers of other kinds may hold hooks further inside."""
    return type(layer) is not nn.Linear or bool(layer._forward_hooks or module._global_forward_hooks)


def activate_in_place(x: Tensor, name: Activation) -> Tensor:
    """For an `x` that nobody else holds: without a gradient to keep it for, GELU overwrites it."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or name not in ("gelu", "gelu-tanh"):
        return activate(x, name)
    return torch.ops.aten.gelu_(x, approximate="tanh" if name == "gelu-tanh" else "none")


def activate(x: Tensor, name: Activation) -> Tensor:
    match name:
        case "gelu":  # x Φ(x), Hendrycks & Gimpel 2016
            return F.gelu(x)
        case "gelu-tanh":  # GPT-2's approximation of it
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "relu-squared":  # So et al. 2021
            return F.relu(x).square()
        case "silu":
            return F.silu(x)
        case "tanh":
            return torch.tanh(x)
