"""SmoothQuant (Xiao et al. 2023): large activations made smaller, and the weights that read them larger.

    x W = (x / s) (s W),   s_j = max|x_j|^α / max|W_j|^(1 − α),   α = 1/2

Nobody divides by s at run time: it is folded into what produces x. Only foldings that change no output are done:

    pre-norm   norm → query, key, value; norm → cross-attention's query; norm → up     gain and bias of the norm
    all        value → out: attention adds values channel by channel                   rows of the value matrix
    gated      the linear half of up → down                                            rows of that half
    ReLU       up → down: relu(u / s) = relu(u) / s                                    rows of up; for relu² by √s

Post-norm (BERT): the norm's output is the residual as well, so it cannot be divided. GELU is not homogeneous, so BERT's
and GPT-2's down cannot be smoothed either.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft.model.attention import Attention, CrossAttention
from weft.model.block import Block
from weft.model.feedforward import FeedForward
from weft.model.network import Network

_ALPHA = 0.5
_LEAST = 1e-5


@dataclass(frozen=True)
class SmoothingSite:
    consumer: str  # the linear layer that reads x
    producer: str  # in words
    divide: Callable[[Tensor], None]  # x by factors (inputs,)
    shared: Callable[[Tensor], Tensor] = lambda factors: factors  # factors (inputs,) that the producer can divide by


def smoothing_sites(network: Network) -> Iterator[SmoothingSite]:
    """In the order of the forward pass."""
    for name, module in network.named_modules():
        match module:
            case Block() if not module.post:
                yield from _norm_sites(name, module)
            case Attention() | CrossAttention():
                yield _value_site(name, module)
            case FeedForward() if module.spec.gated or module.spec.activation in ("relu", "relu-squared"):
                yield SmoothingSite(f"{name}.down", "up", lambda factors, part=module: _divide_up(part, factors))


def smoothing_factors(largest: Tensor, weight: Tensor) -> Tensor:
    """`largest` (inputs,): max |x|. `weight` (outputs, inputs)."""
    magnitudes = weight.abs().amax(0).clamp(min=_LEAST)
    return (largest.clamp(min=_LEAST) ** _ALPHA / magnitudes ** (1 - _ALPHA)).clamp(min=_LEAST)


@torch.no_grad()
def fold(network: Network, site: SmoothingSite, factors: Tensor) -> None:
    """Divide x by the factors and multiply the weights by them."""
    site.divide(factors)
    network.get_parameter(f"{site.consumer}.weight").mul_(factors)


def _norm_sites(name: str, block: Block) -> Iterator[SmoothingSite]:
    pairs = {"attention_norm": "attention.qkv", "cross_norm": "cross.query", "feedforward_norm": "feedforward.up"}
    for norm_name, consumer in pairs.items():
        if (norm := getattr(block, norm_name)) is not None:
            yield SmoothingSite(
                f"{name}.{consumer}", norm_name, lambda factors, part=norm: _divide_rows(part, factors, slice(None))
            )


def _value_site(name: str, attention: Attention | CrossAttention) -> SmoothingSite:
    """Query heads that share a value head share its factors: the largest of each channel."""
    spec, is_cross = attention.spec, isinstance(attention, CrossAttention)
    matrix: nn.Linear = attention.key_value if isinstance(attention, CrossAttention) else attention.qkv
    heads = spec.heads if is_cross else spec.key_value_heads
    queries_per_value = spec.heads // heads
    rows = slice(matrix.out_features - heads * spec.head_width, None)

    def by_value(factors: Tensor) -> Tensor:
        return factors.view(heads, queries_per_value, spec.head_width).amax(1)

    def shared(factors: Tensor) -> Tensor:
        return by_value(factors)[:, None].expand(-1, queries_per_value, -1).flatten()

    return SmoothingSite(
        f"{name}.out", "value", lambda factors: _divide_rows(matrix, by_value(factors).flatten(), rows), shared
    )


def _divide_up(layer: FeedForward, factors: Tensor) -> None:
    root = factors.sqrt() if layer.spec.activation == "relu-squared" and not layer.spec.gated else factors
    _divide_rows(layer.up, root, slice(layer.up.out_features - layer.spec.inner, None))


@torch.no_grad()
def _divide_rows(layer: nn.Module, factors: Tensor, rows: slice) -> None:
    """The weight and the bias of a norm or of a linear layer."""
    for parameter in layer.parameters():
        parameter[rows] /= factors.view(-1, *[1] * (parameter.dim() - 1))
