"""Fresh weights for a network that is only an outline, module by module, so that no process ever holds all of them.

Every weight is drawn as in a single process. A tensor parallel peer draws the weights of a block and keeps its part.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from weft.model.block import Block
from weft.model.network import Network, outline
from weft.train.build import draw_weights
from weft.train.layout import WeightLayout


def fill_network(network: Network, seed: int, device: str) -> None:
    for _ in fill_modules(network, seed, device):
        pass


def fill_modules(network: Network, seed: int, device: str) -> Iterator[nn.Module]:
    """Each block once its weights are there, and in the end the network. The caller may cut what it gets. Weights that
    are there already are moved to the device.
    """
    blocks = {path: module for path, module in network.named_modules() if isinstance(module, Block)}
    for path, block in blocks.items():
        _fill(network, seed, device, lambda name, path=path: f"{name}.".startswith(f"{path}."))  # type: ignore[misc]
        yield block
    _fill(network, seed, device, lambda name: not any(f"{name}.".startswith(f"{path}.") for path in blocks))
    yield network


def _fill(network: Network, seed: int, device: str, only: Callable[[str], bool]) -> None:
    """Fresh weights for the outlines among some modules, and the device for the others."""
    if not _give_room(network, device, only):
        return
    if network.tensor_parallel is None:
        draw_weights(network, seed, only)
        return
    whole, layout = outline(network.architecture), WeightLayout(network)
    _give_room(whole, "cpu", only)
    draw_weights(whole, seed, only)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if only(name.rpartition(".")[0]):
                weight.copy_(layout.part(name, weight).taken_from(whole.get_parameter(name)))


def _give_room(network: Network, device: str, only: Callable[[str], bool]) -> bool:
    """Memory for the weights of some modules. Returns whether any of them was an outline."""
    made: dict[nn.Parameter, nn.Parameter] = {}  # tied weights stay tied
    has_outline = False
    for module in (module for path, module in network.named_modules() if only(path)):
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            if weight not in made:
                there = torch.empty_like(weight, device=device) if weight.is_meta else weight.detach().to(device)
                made[weight] = nn.Parameter(there, requires_grad=weight.requires_grad)
            setattr(module, name, made[weight])
            has_outline = has_outline or weight.is_meta
    return has_outline
