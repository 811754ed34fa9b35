"""A copy of a network for generation on a CPU: the same weights, stored for a few rows at a time (`layouts`), its
decoder layers in few operations (`inference_block`). On a GPU nothing changes.
"""

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch

from weft.errors import InputError
from weft.generate.inference_block import inference_blocks
from weft.generate.layouts import LaidOutLinear
from weft.model.network import Network

_State = tuple[tuple[int, int], ...]
_ready: WeakKeyDictionary[Network, tuple[_State, dict[bool, Network]]] = WeakKeyDictionary()


def prepared(network: Network, *, int8: bool = False) -> Network:
    """Made once per network, and again if its weights change."""
    state = _state_of(network)
    known, found = _ready.get(network, (None, {}))
    if known != state:
        found = {}
        _ready[network] = state, found
    if int8 not in found:
        found[int8] = _prepare(network, int8=int8)
    return found[int8]


def _prepare(network: Network, *, int8: bool) -> Network:
    """The matrices of the decoder layers and the language-model head are copied; everything else is shared."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if int8 and not (on_cpu and torch.backends.quantized.engine not in (None, "none")):
        raise InputError("int8 weights need a CPU, and a torch build with quantized kernels.")
    ready: Any = for_reading(network)
    if not on_cpu:
        return ready
    if ready.decoder is not None:
        fast = inference_blocks(ready.decoder.blocks, int8=int8)
        del ready.decoder.blocks
        ready.decoder.blocks = fast  # these are not modules
    for kind in ready.heads:
        if kind in ("causal", "seq2seq"):
            ready.heads[kind].out = LaidOutLinear(ready.heads[kind].out, int8=int8)
    return ready


def for_reading(network: Network) -> Network:
    """A copy that shares the weights and stays in eval mode, whatever the original does."""
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, shared).eval()


def _state_of(network: Network) -> _State:
    """Differs after any weight has changed."""
    return tuple(
        (parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version)
        for parameter in network.parameters()
    )
