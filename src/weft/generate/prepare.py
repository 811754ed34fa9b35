"""A copy of a network for generation. It shares the weights; on a CPU it also has them in the order in which the
kernels read them (`layer_kernel`), or laid out for a few rows at a time where there are no kernels (`layouts`).
"""

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from weft.errors import InputError
from weft.generate.kernels import load_generation_kernels
from weft.generate.layer_kernel import KernelStack, kernel_stack_for
from weft.generate.layouts import LaidOutLinear
from weft.inference.compiled_forward import compile_forward, is_quantized
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.matrices import WeightPrecision
from weft.inference.precision import packed_precision
from weft.inference.weight_watch import WeightWatch, are_packable
from weft.model.network import Network
from weft.model.quantized import QuantizedLinear

_State = tuple[tuple[int, int], ...]
_ready: WeakKeyDictionary[Network, tuple[WeightWatch | _State, dict[WeightPrecision, "Prepared"]]] = WeakKeyDictionary()


class Prepared:
    """`network` in eval mode, whatever the original does. `stack`: its decoder in C, where that is possible."""

    def __init__(self, network: Network, stack: KernelStack | None) -> None:
        self.network, self.stack = network, stack


def prepared(network: Network, *, int8: bool = False) -> Prepared:
    """Made once per network, and again if its weights change. In the precision that the network was loaded in; `int8`:
    in int8 whatever that is.
    """
    known, found = _ready.get(network, (None, {}))
    if not _is_unchanged(network, known):
        found = {}
        _ready[network] = _watch(network), found
    precision = "int8" if int8 else packed_precision(network)
    if precision not in found:
        found[precision] = _prepare(network, precision)
    return found[precision]


def _prepare(network: Network, precision: WeightPrecision) -> Prepared:
    """bf16 is for what is read in one pass: an encoder's source, a text to score. The decoder's steps are in fp32."""
    int8 = precision == "int8"
    on_cpu = next(network.parameters()).device.type == "cpu"
    has_int8 = load_generation_kernels() is not None or torch.backends.quantized.engine not in (None, "none")
    if int8 and not (on_cpu and has_int8):
        raise InputError("int8 weights need a CPU, and a C compiler or a torch build with quantized kernels.")
    ready: Any = _copied(network)
    if not on_cpu:
        return Prepared(ready, None)
    _lay_out(ready.heads, int8=int8)
    if load_forward_kernels() is not None and next(network.parameters()).dtype == torch.float32:
        compile_forward(ready, "int8" if is_quantized(network) else precision)
    elif ready.encoder is not None:
        _lay_out(ready.encoder, int8=int8)
    stack = None
    if ready.decoder is not None:
        head = ready.heads["seq2seq" if ready.architecture.is_encoder_decoder else "causal"]
        stack = kernel_stack_for(ready.decoder, head, int8=int8)
        if stack is None:
            _lay_out(ready.decoder, int8=int8)
    return Prepared(ready, stack)


def _lay_out(module: nn.Module, *, int8: bool) -> None:
    """Replace the linear layers below a module of the copy."""
    for name, child in module.named_children():
        if type(child) is nn.Linear or isinstance(child, QuantizedLinear):
            setattr(module, name, LaidOutLinear(child, int8=int8))
        else:
            _lay_out(child, int8=int8)


def _copied(network: Network) -> Network:
    """A copy that shares the weights and stays in eval mode, whatever the original does."""
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, shared).eval()


def _watch(network: Network) -> WeightWatch | _State:
    kernels = load_forward_kernels()
    return _state_of(network) if kernels is None or not are_packable(network) else WeightWatch(kernels, network)


def _is_unchanged(network: Network, known: WeightWatch | _State | None) -> bool:
    return known.is_unchanged() if isinstance(known, WeightWatch) else known == _state_of(network)


def _state_of(network: Network) -> _State:
    """Differs after any weight has changed, as far as torch counts changes."""
    return tuple(
        (weights.data_ptr(), 0 if weights.is_inference() else weights._version)
        for weights in (*network.parameters(), *network.buffers())
    )
