"""Move all tensors of a batch to a GPU in one copy.

A batch has six to ten small tensors in pageable memory; each would be a blocking copy of its own. Here they are laid
end to end in one pinned buffer, which is copied once; the tensors on the device are views of that copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

_T = TypeVar("_T")

_ALIGNMENT = 16  # bytes; a view needs an offset that its element size divides


def moved(tree: _T, device: torch.device, *, non_blocking: bool = False) -> _T:
    """`tree` (dataclasses, mappings and tensors, nested) with every tensor on `device`."""
    tensors = [tensor for tensor in _tensors(tree) if tensor.device != device]
    if not tensors:
        return tree
    copies = _copied(tensors, device, non_blocking)
    return cast(_T, _replaced(tree, dict(zip(map(id, tensors), copies, strict=True))))


def _copied(tensors: list[Tensor], device: torch.device, non_blocking: bool) -> list[Tensor]:
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    offsets = [0]
    for size in sizes:
        offsets.append(-(-(offsets[-1] + size) // _ALIGNMENT) * _ALIGNMENT)
    buffer = torch.empty(offsets[-1], dtype=torch.uint8, pin_memory=device.type == "cuda" and torch.cuda.is_available())

    def views(whole: Tensor) -> list[Tensor]:
        return [
            whole[start : start + size].view(tensor.dtype).view(tensor.shape)
            for tensor, start, size in zip(tensors, offsets, sizes, strict=False)
        ]

    for view, tensor in zip(views(buffer), tensors, strict=True):
        view.copy_(tensor)
    # Apple's GPUs read the buffer later: it must still be there.
    return views(buffer.to(device, non_blocking=non_blocking and device.type != "mps"))


def _tensors(tree: Any) -> Iterator[Tensor]:
    match tree:
        case Tensor():
            yield tree
        case Mapping():
            for value in tree.values():
                yield from _tensors(value)
        case _ if is_dataclass(tree):
            for name in _given(tree):
                yield from _tensors(getattr(tree, name))


def _replaced(tree: Any, by_id: dict[int, Tensor]) -> Any:
    match tree:
        case Tensor():
            return by_id.get(id(tree), tree)
        case Mapping():
            return {key: _replaced(value, by_id) for key, value in tree.items()}
        case _ if is_dataclass(tree) and not isinstance(tree, type):
            return replace(tree, **{name: _replaced(getattr(tree, name), by_id) for name in _given(tree)})
    return tree


def _given(tree: Any) -> list[str]:
    """The fields that a dataclass is made of. The others are computed again from the moved ones."""
    return [field.name for field in fields(tree) if field.init]
