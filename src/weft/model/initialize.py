"""The weights before training: a pure function of the architecture and a seed.

Two schemes. `normal`: N(0, std²) for every matrix and embedding, zero biases, norms at one; with `depth_scaled` the
matrices that write to the residual stream get std / √(2 · layers), so that its variance does not grow with depth
(Radford et al. 2019, section 2.3). `t5`: each matrix by its fan-in, which also absorbs the missing 1/√D of T5's
attention (Raffel et al. 2020; Mesh TensorFlow's defaults).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from weft.model.attention import Attention, CrossAttention
from weft.model.feedforward import FeedForward
from weft.model.heads import Head


@dataclass(frozen=True)
class InitSpec:
    kind: Literal["normal", "t5"] = "normal"
    std: float = 0.02
    depth_scaled: bool = False


@torch.no_grad()
def initialize(network: nn.Module, spec: InitSpec, *, width: int, layers: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def fill(weight: Tensor, std: float) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)

    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            fill(module.weight, spec.std)
        elif isinstance(module, nn.LSTM):
            reach = module.hidden_size**-0.5
            for weight in module.parameters():
                weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * reach)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.weight.fill_(1.0)
        if isinstance(bias := getattr(module, "bias", None), Tensor):
            bias.zero_()
    if spec.kind == "t5":
        _initialize_t5(network, width, fill)
    elif spec.depth_scaled:
        for out in _residual_writers(network):
            fill(out.weight, spec.std * (2 * layers) ** -0.5)


@torch.no_grad()
def silence_blocks(network: nn.Module) -> None:
    """Every block begins by adding nothing to the residual stream, and finds its voice by training."""
    for out in _residual_writers(network):
        out.weight.zero_()


def _residual_writers(network: nn.Module) -> list[nn.Linear]:
    attention = [m.out for m in network.modules() if isinstance(m, Attention | CrossAttention)]
    return attention + [m.down for m in network.modules() if isinstance(m, FeedForward)]


def _initialize_t5(network: nn.Module, width: int, fill: Callable[[Tensor, float], None]) -> None:
    for name, module in network.named_modules():
        if isinstance(module, nn.Embedding):
            # The relative bias table is (buckets, heads); the token table's rows have the model's width.
            fill(module.weight, width**-0.5 if name.endswith("relative.table") else 1.0)
        elif isinstance(module, nn.Linear):
            fill(module.weight, module.in_features**-0.5)
        if isinstance(module, Attention | CrossAttention):
            query = module.qkv if isinstance(module, Attention) else module.query
            rows = module.spec.heads * module.spec.head_width
            fill(query.weight[:rows], (query.in_features * module.spec.head_width) ** -0.5)
        if isinstance(module, Head) and module.out is not None:
            # A tied output matrix is the embedding, whose scale 1 the head's own 1/√W takes back.
            fill(module.out.weight, 1.0 if module.spec.tied else width**-0.5)
