"""Learned maps from a student's width to its teacher's, for comparing hidden states (TinyBERT, eq. 8 and 9).

They are a part of the network while it trains, so that optimizers and checkpoints know them, and are removed
afterwards. Students of the teacher's own width have none.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft.model.network import Network

_MODULE = "projections"


def add_projections(network: Network, names: Sequence[str], width: int, kept: Sequence[int] | None) -> None:
    """A map to `width` for each name. `kept`: the teacher's dimension that each of the student's was cut from; the maps
    begin by putting these into their places.
    """
    if network.width == width:
        return
    start = torch.zeros(width, network.width)
    if kept is None:
        generator = torch.Generator().manual_seed(0)
        start.normal_(std=network.width**-0.5, generator=generator)
    else:
        start[torch.tensor(kept), torch.arange(network.width)] = 1.0
    device = next(network.parameters()).device
    maps = nn.ParameterDict({name: nn.Parameter(start.clone().to(device)) for name in names})
    network.add_module(_MODULE, maps)


def remove_projections(network: Network) -> None:
    network._modules.pop(_MODULE, None)


def in_teacher_width(network: Network, name: str, hidden_TW: Tensor) -> Tensor:
    """In the teacher's width."""
    maps = network._modules.get(_MODULE)
    return hidden_TW if maps is None else nn.functional.linear(hidden_TW, maps[name])  # type: ignore[index]
