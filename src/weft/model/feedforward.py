"""The position-wise network: two matrices with an activation between them, applied to each token alone.

plain (Vaswani et al. 2017, section 3.3):   FFN(x) = f(x W₁ + b₁) W₂ + b₂
gated (Shazeer 2020):                       FFN(x) = (f(x W₁) ⊙ x V) W₂     with f = SiLU it is SwiGLU

W₁ and V are one matrix `up` (W₁ first), so a gated layer is also two matrix products.
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
        """The activation and, if gated, the product with the other half."""
        if not self.spec.gated:
            return activation(x, self.spec.activation)
        if self.spec.activation == "silu":
            return gate(x)
        gated, linear = x.chunk(2, dim=-1)
        return activation(gated, self.spec.activation) * linear


def _is_watched(layer: nn.Module) -> bool:
    """Whether a hook may hold this layer's output. Any other class than nn.Linear may contain hooked modules."""
    return type(layer) is not nn.Linear or bool(layer._forward_hooks or module._global_forward_hooks)


def activate_in_place(x: Tensor, name: Activation) -> Tensor:
    """Only for an `x` that nobody else holds. Without gradients, GELU overwrites it."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or name not in ("gelu", "gelu-tanh"):
        return activate(x, name)
    return torch.ops.aten.gelu_(x, approximate="tanh" if name == "gelu-tanh" else "none")


def activate(x: Tensor, name: Activation) -> Tensor:
    match name:
        case "gelu":  # x Φ(x), Hendrycks & Gimpel 2016
            return F.gelu(x)
        case "gelu-tanh":  # the tanh approximation, as in GPT-2
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "relu-squared":  # So et al. 2021
            return F.relu(x).square()
        case "silu":
            return F.silu(x)
        case "tanh":
            return torch.tanh(x)
