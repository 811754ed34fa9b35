"""When packed weights may be used: nothing but numbers is asked for, and the weights are still the same.

This runs before every batch, so it is a few loops over flat lists, without bytecode: 30 µs for 6 layers. torch counts
the changes of a tensor, but not those made through `.data` or a numpy view, nor those of a tensor made in inference
mode. So some numbers of every tensor are compared as well, which finds changes of whole tensors.
"""

import ctypes
from collections.abc import Iterator
from operator import is_, itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from weft.inference.forward_kernels import ForwardKernels

_SETTINGS = ("eps", "post", "positions", "spec")  # attributes that are packed besides weights
_WORD = 4  # bytes, as in weft_sample
_version = Tensor._version.__get__  # type: ignore[attr-defined]


class WeightWatch:
    """The modules and weights of a part of a network, as they were when they were packed."""

    def __init__(self, kernels: ForwardKernels, *roots: nn.Module) -> None:
        """The weights `are_packable`."""
        modules = [module for root in roots for module in root.modules()]
        self.states = [vars(module) for module in modules]
        self.state_sizes = [len(state) for state in self.states]  # a larger one may have a `forward` of its own
        self.children = [module._modules for module in modules]
        self.known_children = [dict(children) for children in self.children]
        self.hooks = [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]
        # Modules with weights compute the same in both modes, and one that was put in place later may be in the other.
        self.droppers = [vars(one) for one in modules if not (one._parameters or one._buffers)]
        watched = list(_watched(modules))
        self.owners = [owner for owner, _, _ in watched]
        self.names = [name for _, name, _ in watched]
        self.values = [value for _, _, value in watched]
        self.tensors = [value for value in self.values if isinstance(value, Tensor)]
        self.places = [tensor.data_ptr() for tensor in self.tensors]
        self.counted = [tensor for tensor in self.tensors if not tensor.is_inference()]
        self.versions = [tensor._version for tensor in self.counted]
        self._prepare_sample(kernels)

    def _prepare_sample(self, kernels: ForwardKernels) -> None:
        self.held = [tensor.detach() for tensor in self.tensors]  # the memory stays, even if `.data` is replaced
        count = len(self.held)
        self.addresses = (ctypes.c_void_p * count)(*self.places)
        self.words = (ctypes.c_int64 * count)(*(_words(tensor) for tensor in self.held))
        self.sample_kernel = kernels.sample
        self.sampled = ctypes.addressof(self.addresses), ctypes.addressof(self.words), count
        self.sample = kernels.sample(*self.sampled)

    def is_unchanged(self) -> bool:
        return (
            all(map(is_, map(dict.get, self.owners, self.names), self.values))
            and self.children == self.known_children
            and [*map(len, self.states)] == self.state_sizes
            and [*map(Tensor.data_ptr, self.tensors)] == self.places
            and [*map(_version, self.counted)] == self.versions
            and self.sample_kernel(*self.sampled) == self.sample
        )

    def needs_modules(self) -> bool:
        """Hooks want to see what every module computes, and a module that trains may drop some of it."""
        if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
            return True
        return any(self.hooks) or any(map(itemgetter("training"), self.droppers))


def _watched(modules: list[nn.Module]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    for module in modules:
        for owner in (module._parameters, module._buffers):
            yield from ((owner, name, part) for name, part in owner.items())
        state = vars(module)
        yield from ((state, name, state[name]) for name in _SETTINGS if name in state)


def _words(tensor: Tensor) -> int:
    """From the tensor's first number on; its strides do not matter, only that the memory is its own."""
    left = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
    return min(left, tensor.numel() * tensor.element_size()) // _WORD


def are_packable(*roots: nn.Module) -> bool:
    """Whether all weights are CPU tensors, and those that are not integers fp32."""
    for module in (module for root in roots for module in root.modules()):
        for parts, dtypes in (
            (module._parameters, (torch.float32,)),
            (module._buffers, (torch.float32, torch.int8)),
        ):
            for part in parts.values():
                if part is None:
                    continue
                if type(part) not in (Tensor, nn.Parameter) or not part.is_cpu or part.dtype not in dtypes:
                    return False
    return True


def is_plain_inference(module: nn.Module) -> bool:
    """Whether nobody needs what torch does besides computing: gradients, dropout, autocast, tracing."""
    return not (
        module.training
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or torch.compiler.is_exporting()
        or torch.jit.is_tracing()
        or is_in_torch_dispatch_mode()
    )
