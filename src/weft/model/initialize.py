"""The weights before training: a pure function of the architecture and a seed.

N(0, std²) for every matrix and embedding, zero biases, norms at one. With `depth_scaled` the matrices that write to the
residual stream get std / √(2 · layers), so that its variance does not grow with depth (Radford et al. 2019, section
2.3). `t5` makes up for what T5 leaves out and adds: its attention does not divide by √D, so queries get std / √D, and
its head divides by √W, so the matrix behind it, which is also the table of tokens, gets √W · std.
"""

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
        _initialize_t5(network)
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


def _initialize_t5(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, Attention | CrossAttention) and not module.spec.scaled:
            query = module.qkv if isinstance(module, Attention) else module.query
            query.weight[: module.spec.heads * module.spec.head_width] *= module.spec.head_width**-0.5
    for matrix, scale in output_scales(network).items():
        matrix *= scale


def output_scales(network: nn.Module) -> dict[Tensor, float]:
    """Output matrices behind a head that scales what it reads, and how much larger than others that makes them: with
    steps so much larger, too, they are the matrices of a head that does not, in other units.
    """
    heads = [module for module in network.modules() if isinstance(module, Head)]
    return {head.out.weight: 1 / head.spec.scale for head in heads if head.out is not None and head.spec.scale}
