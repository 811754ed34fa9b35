"""When packed weights may be used: nothing but numbers is asked for, and the weights are still the same."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


class WeightWatch:
    """The modules and weights of a part of a network, as they were when they were packed."""

    def __init__(self, *roots: nn.Module) -> None:
        self.modules = [module for root in roots for module in root.modules()]
        self.tensors = [(owner, name, part, *_mark(part)) for owner, name, part in _tensors(self.modules)]
        self.children = [(module._modules, dict(module._modules)) for module in self.modules]

    def is_unchanged(self) -> bool:
        return all(
            owner.get(name) is part and _mark(part) == (place, version)
            for owner, name, part, place, version in self.tensors
        ) and all(now == then for now, then in self.children)

    def is_plain(self) -> bool:
        """Whether all are CPU tensors, and those that are not integers fp32."""
        parts = [part for _, _, part, _, _ in self.tensors]
        is_known = all(type(part) in (Tensor, nn.Parameter) and part.device.type == "cpu" for part in parts)
        return is_known and all(part.dtype in (torch.float32, torch.int8) for part in parts)

    def has_hooks(self) -> bool:
        """Hooks want to see what every module computes."""
        if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
            return True
        return any(module._forward_hooks or module._forward_pre_hooks for module in self.modules)


def _tensors(modules: list[nn.Module]) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    for module in modules:
        for owner in (module._parameters, module._buffers):
            yield from ((owner, name, part) for name, part in owner.items() if part is not None)


def _mark(tensor: Tensor) -> tuple[int, int]:
    """Differs after the tensor's numbers have changed."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def is_plain_inference(module: nn.Module) -> bool:
    """Whether nobody needs what torch does besides computing: gradients, dropout, autocast, tracing."""
    return not (
        module.training
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
        or torch.compiler.is_exporting()
        or is_in_torch_dispatch_mode()
    )
