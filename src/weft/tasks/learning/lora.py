"""Low-rank adapters (LoRA, Hu et al. 2022): the matrices of the blocks are frozen, and each gets a small trained one.

    y = x Wᵀ + b + (α / r) (x Aᵀ) Bᵀ,     A: r × in, random;  B: out × r, initially zero

With r = 8 about one weight in a hundred is trained. Saving merges W + (α / r) B A, so the folder is a plain model.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.model.network import Network

LORA_SCALE = 2.0  # α / r


class Adapted(nn.Linear):
    """A frozen linear layer with its adapter."""

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
        return super().forward(x) + LORA_SCALE * F.linear(F.linear(x, self.down), self.up)

    def merged(self) -> Tensor:
        return self.weight + LORA_SCALE * self.up @ self.down


def adapt(network: Network, rank: int, seed: int) -> None:
    """Add adapters; only these and the heads are trained."""
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
    # A vocabulary layer that is tied to the embeddings is frozen with them.
    heads -= {id(parameter) for table in tables for parameter in table.parameters()}
    for name, parameter in network.named_parameters():
        is_free = id(parameter) in heads or name.startswith("crf.")
        parameter.requires_grad_(parameter.requires_grad and is_free)


@torch.no_grad()
def plain_state(network: Network) -> dict[str, Tensor]:
    """The weights by the names of a plain network, with merged adapters and without a CRF."""
    state = dict(network.state_dict())
    for name, module in network.named_modules():
        if isinstance(module, Adapted):
            state[f"{name}.weight"] = module.merged()
            del state[f"{name}.down"], state[f"{name}.up"]
    return {name: tensor for name, tensor in state.items() if not name.startswith("crf.")}
