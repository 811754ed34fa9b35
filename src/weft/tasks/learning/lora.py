"""Low-rank adapters (Hu et al. 2022): the matrices of the blocks stand still, and each gets a small companion.

    y = x Wᵀ + b + (α / r) (x Aᵀ) Bᵀ,     A: r × in, random;  B: out × r, zero at the beginning

With r = 8 about one weight in a hundred learns. On saving, W + (α / r) B A is one matrix again: what is written is a
plain model.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.model.network import Network

SCALE = 2.0  # α / r


class Adapted(nn.Linear):
    """A linear layer that stands still, with its adapter."""

    def __init__(self, layer: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        device = layer.weight.device
        self.down = nn.Parameter(torch.empty(rank, layer.in_features, device=device))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank, device=device))
        with torch.no_grad():
            bound = math.sqrt(3 / layer.in_features)
            self.down.copy_(torch.empty(self.down.shape).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + SCALE * F.linear(F.linear(x, self.down), self.up)

    def merged(self) -> Tensor:
        return self.weight + SCALE * self.up @ self.down


def adapt(network: Network, rank: int, seed: int) -> None:
    """Only the adapters and the heads learn from here on."""
    generator = torch.Generator().manual_seed(seed)
    freeze_backbone(network)
    for stack in (network.encoder, network.decoder):
        if stack is not None:
            for module in list(stack.modules()):
                for name, child in list(module.named_children()):
                    if type(child) is nn.Linear:
                        setattr(module, name, Adapted(child, rank, generator))


def freeze_backbone(network: Network) -> None:
    heads = {id(parameter) for parameter in network.heads.parameters()}
    tables = [part for part in (network.embed, network.decoder_embed) if part is not None]
    # A vocabulary layer that is tied to the embeddings belongs to both, and stands still.
    heads -= {id(parameter) for table in tables for parameter in table.parameters()}
    for name, parameter in network.named_parameters():
        is_free = id(parameter) in heads or name.startswith("crf.")
        parameter.requires_grad_(parameter.requires_grad and is_free)


@torch.no_grad()
def plain_state(network: Network) -> dict[str, Tensor]:
    """The weights by the names of a plain network, adapters merged."""
    state = dict(network.state_dict())
    for name, module in network.named_modules():
        if isinstance(module, Adapted):
            state[f"{name}.weight"] = module.merged()
            del state[f"{name}.down"], state[f"{name}.up"]
    return {name: tensor for name, tensor in state.items() if not name.startswith("crf.")}
