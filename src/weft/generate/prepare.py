"""A network made ready to write: the same weights, laid out for few rows at a time (`layouts`), its decoder's layers
lean (`lean`). On a GPU it stays as it is.
"""

import copy
from typing import Any

import torch
from torch import nn

from weft.errors import InputError
from weft.generate.layouts import LaidOut
from weft.generate.lean import make_lean
from weft.model.network import Network


def prepare(network: Network, *, int8: bool = False) -> Network:
    """Shares every parameter with `network`; the matrices of its linear layers are there a second time."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if int8 and not (on_cpu and torch.backends.quantized.engine not in (None, "none")):
        raise InputError("int8 weights need a CPU, and a torch that was built with quantized kernels.")
    if not on_cpu:
        return network
    ready = copy.deepcopy(network, {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())})
    if ready.decoder is not None:
        lean = make_lean(ready.decoder.blocks, int8=int8)
        decoder: Any = ready.decoder
        del decoder.blocks
        decoder.blocks = lean  # which are no modules
    for module in list(ready.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, LaidOut(child, int8=int8))
    return ready.eval()


def state_of(network: Network) -> tuple[tuple[int, int], ...]:
    """Changes when a weight does."""
    return tuple((parameter.data_ptr(), parameter._version) for parameter in network.parameters())
