"""A pretend GPU: a device for torch that computes on the CPU and is as strict as a GPU.

Its tensors are not CPU tensors: an operation that mixes the two fails, as on a GPU, and whatever makes the CPU wait for
the GPU is written down with the line of weft that asked for it. Training and generation run on it as a whole, backward
passes and optimizers included, with numbers that can be compared with those of a CPU.

torch knows it as a device of its own (PrivateUse1), not as CUDA. With `is_like_cuda`, tensors claim `is_cuda`, and
torch's variable-length attention, which has no kernel for CPUs, is computed by its definition.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import backend_registration as registration

import weft
from pretend_kernels import kernel_for
from weft import devices

NAME = "pretend"
GPU = torch.device("cpu")  # until `register`

_WEFT = str(Path(weft.__file__).parent)
_ATEN = torch.ops.aten
# The size of their results depends on values, so the CPU must wait for them.
_OF_UNKNOWN_SIZE = {
    _ATEN.nonzero, _ATEN.masked_select, _ATEN._unique2, _ATEN.unique_dim, _ATEN.unique_consecutive, _ATEN.bincount,
    _ATEN.equal,
}  # fmt: skip
_COPIES = {_ATEN.copy_, _ATEN._to_copy}
_INDEXING = {_ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_, _ATEN._unsafe_index}
_LENGTHS_ON_CPU = {_ATEN._pack_padded_sequence, _ATEN._pad_packed_sequence, _ATEN.lstm}  # torch's interface wants them

_COMPARE_ADDRESSES = {"prepare.py"}  # to see whether weights were replaced

_waits: list[str] = []
_used: set[str] = set()
_is_open = [False]  # outside of `pretend_gpu` there is no such device
_wide_numbers: list[bool] = [True]  # whether the device has float64: Apple's GPUs do not


class OnGpu(Tensor):
    raw: Tensor
    claims_cuda = False

    @staticmethod
    def __new__(cls, raw: Tensor) -> "OnGpu":
        if raw.dtype in (torch.float64, torch.complex128) and not _wide_numbers[0]:
            raise TypeError("Cannot convert a tensor to float64: this device does not support float64.")
        sizes = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        with torch.inference_mode(False):  # a view of a weight is no inference tensor
            found = Tensor._make_wrapper_subclass(cls, raw.size(), **sizes, dtype=raw.dtype, device=GPU)
        found.raw = raw
        return found

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, *args, **(kwargs or {}))

    @property
    def is_cuda(self) -> bool:
        return OnGpu.claims_cuda

    def tolist(self) -> Any:
        _note("tolist")
        return self.raw.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert pretend:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def data_ptr(self) -> int:
        asks = Path(sys._getframe(1).f_code.co_filename)
        if str(asks).startswith(_WEFT) and asks.name not in _COMPARE_ADDRESSES:
            raise RuntimeError("A kernel for CPUs was given the address of a tensor on a GPU.")
        return self.raw.data_ptr()

    def untyped_storage(self) -> Any:
        return self.raw.untyped_storage()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnGpu({self.raw})"


class _Facts(NamedTuple):
    """About an operation; asked for every call."""

    op: Any
    kernel: Callable[..., Any]
    is_composite: bool  # made of others, if nobody has taken it apart before
    changed: list[tuple[int, str]]  # the arguments that it changes and returns


@cache
def _facts(func: Any) -> _Facts:
    changed = [
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return _Facts(func.overloadpacket, kernel_for(func), is_composite, changed if func._schema.returns else [])


def _compute(func: Any, *args: Any, **kwargs: Any) -> Any:
    op, kernel, is_composite, changes = _facts(func)
    if is_composite:
        return func.decompose(*args, **kwargs)
    _used.add(func.name())
    _check_devices(op, [*_tensors(args), *_tensors(kwargs.values())])
    _note_waits(op, args, kwargs)
    out = kernel(*_mapped(_on_cpu, args), **{name: _mapped(_on_cpu, value) for name, value in kwargs.items()})
    if op is _ATEN._pack_padded_sequence:
        return OnGpu(out[0]), out[1]  # torch keeps the batch sizes on the CPU
    if op is _ATEN._to_copy and kwargs.get("device") is not None:
        return out if kwargs["device"].type == "cpu" else OnGpu(out)
    changed = [args[place] if place < len(args) else kwargs.get(name) for place, name in changes]
    if changed:
        return changed[0] if len(func._schema.returns) == 1 else tuple(changed)
    return _mapped(lambda x: OnGpu(x) if isinstance(x, Tensor) else x, out)


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    return type(tree)(_mapped(function, one) for one in tree) if type(tree) in (list, tuple) else function(tree)


def _tensors(tree: Any) -> Iterator[Tensor]:
    for one in tree:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _on_cpu(x: Any) -> Any:
    if isinstance(x, OnGpu):
        return x.raw
    return torch.device("cpu") if isinstance(x, torch.device) else x


def _check_devices(op: Any, given: Sequence[Tensor]) -> None:
    strange = [x for x in given if not isinstance(x, OnGpu) and x.dim() > 0]
    if strange and len(strange) < len(given) and op not in _COPIES | _INDEXING | _LENGTHS_ON_CPU:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {GPU} and cpu: {op}"
        )


def _note_waits(op: Any, args: Any, kwargs: Any) -> None:
    if op is _ATEN._local_scalar_dense:
        _note("item")
    elif op in _OF_UNKNOWN_SIZE or (op is _ATEN.repeat_interleave and kwargs.get("output_size") is None):
        _note(str(op))
    elif op in _INDEXING:
        for index in (x for x in args[1] if isinstance(x, Tensor)):
            if index.dtype in (torch.bool, torch.uint8):
                _note("indexing by a mask")
            elif not isinstance(index, OnGpu):
                _note("indexing by a tensor of the CPU")
    elif op is _ATEN._to_copy and kwargs.get("device") is not None and kwargs["device"].type == "cpu":
        _note("copy to the CPU")
    elif op is _ATEN.copy_ and isinstance(args[0], OnGpu) != isinstance(args[1], OnGpu):
        is_in_flight = (args[2] if len(args) > 2 else kwargs.get("non_blocking", False)) and isinstance(args[0], OnGpu)
        if not is_in_flight:
            _note("copy from the CPU" if isinstance(args[0], OnGpu) else "copy to the CPU")


def _note(what: str) -> None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_WEFT):
        frame = frame.f_back
    where = "a backward pass" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    _waits.append(f"{what} in {where}")


# Before the first backward pass of the process, which starts a thread for every device. The rest may come later.
torch._C._acc.register_python_privateuseone_device_guard(registration._DummyDeviceGuard())


@cache
def register() -> None:
    """Make the device known to torch. It stays known until the process ends."""
    global GPU
    torch.utils.rename_privateuse1_backend(NAME)
    torch.utils.generate_methods_for_privateuse1_backend()
    torch._register_device_module(NAME, _Module())
    torch._C._acc.register_python_privateuseone_hook(_Hooks())
    GPU = torch.device(NAME, 0)
    torch.library._keep = everything = torch.library.Library("_", "IMPL")  # type: ignore[attr-defined]
    everything.fallback(_compute, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    ours = torch.library.Library("aten", "IMPL")
    everything.ours = ours  # type: ignore[attr-defined]  # kernels live as long as their library
    for overload in ("", ".start", ".start_step"):  # by default they resize an empty tensor, which wrappers cannot
        op = getattr(_ATEN.arange, overload[1:] or "default")
        ours.impl(f"arange{overload}", partial(_compute, op), "PrivateUse1")
    autocast = torch.library.Library("aten", "IMPL")
    everything.autocast = autocast  # type: ignore[attr-defined]
    for name in ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "scaled_dot_product_attention"):
        op = getattr(_ATEN, name).default
        autocast.impl(name, partial(_in_low_precision, op), "AutocastPrivateUse1")


def _in_low_precision(op: Any, *args: Any, **kwargs: Any) -> Any:
    def lowered(x: Any) -> Any:
        return x.to(torch.get_autocast_dtype(NAME)) if isinstance(x, Tensor) and x.dtype == torch.float32 else x

    with torch.autocast(NAME, enabled=False):
        return op(*_mapped(lowered, args), **{name: lowered(value) for name, value in kwargs.items()})


class _Module(registration._DummyBackendModule):
    def is_available(self) -> bool:
        return _is_open[0]

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


class _Hooks(registration._DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return _is_open[0]


@contextmanager
def pretend_gpu(*, is_like_cuda: bool = False, has_float64: bool = True) -> Iterator[torch.device]:
    """Within it, modules keep their tied weights when they are moved, as they do on a real GPU."""
    register()
    made = torch.tensor, torch.as_tensor
    torch.tensor, torch.as_tensor = (partial(_made, function) for function in made)
    moves = nn.Module._apply
    nn.Module._apply = _apply_in_place  # type: ignore[method-assign]
    OnGpu.claims_cuda, _wide_numbers[0], _is_open[0] = is_like_cuda, has_float64, True
    devices.widest_float.cache_clear()
    _waits.clear(), _used.clear()
    try:
        yield GPU
    finally:
        torch.tensor, torch.as_tensor = made
        nn.Module._apply = moves  # type: ignore[method-assign]
        OnGpu.claims_cuda, _wide_numbers[0], _is_open[0] = False, True, False
        devices.widest_float.cache_clear()


_apply = nn.Module._apply


def _apply_in_place(module: nn.Module, *given: Any, **more: Any) -> nn.Module:
    """Moving a module keeps its parameters, as it does on a real GPU: tied weights stay tied."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return _apply(module, *given, **more)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def _made(function: Any, data: Any, **kwargs: Any) -> Tensor:
    """torch.tensor(data, device=…) copies without asking subclasses, which cannot work."""
    device = torch.device(kwargs.pop("device", None) or "cpu")
    if device.type != NAME:
        return function(data, **kwargs, device=device) if device.type != "cpu" else function(data, **kwargs)
    return (data if isinstance(data, Tensor) else function(data, **kwargs)).to(device)


def waits() -> list[str]:
    """What made the CPU wait since the last call."""
    found = list(_waits)
    _waits.clear()
    return found


def used() -> set[str]:
    """The operations on the pretend GPU since the last call."""
    found = set(_used)
    _used.clear()
    return found
