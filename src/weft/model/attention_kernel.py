"""`attention.c` as two torch operators and one autograd function. Fake tensors and the seed: see `layer_passes.py`."""

import ctypes
import functools
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.compiled import Kernel, open_library, operator, threads

_SOURCE = Path(__file__).with_name("attention.c")
# Arguments of both operators after q, k and v. key_starts None: the same as starts.
_VIEW = "Tensor starts, Tensor? key_starts, SymInt longest, bool causal, SymInt? window, float scale, float dropout, "
_VIEW += "Tensor? seed"


class AttentionKernels(NamedTuple):
    forward: Kernel
    backward: Kernel
    scratch: Kernel
    wide: int  # floats per vector register; head widths are a multiple


class Shape(ctypes.Structure):
    """`Shape` of attention.c."""

    _fields_ = (
        ("query_starts", ctypes.c_void_p),
        ("key_starts", ctypes.c_void_p),
        ("sequences", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("padded", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("causal", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("keep", ctypes.c_float),
        ("seed", ctypes.c_uint32),
        ("threshold", ctypes.c_uint32),
    )


@functools.cache
def open_kernels() -> AttentionKernels:
    found = open_library(_SOURCE)
    kernels = AttentionKernels(
        found.weft_attention, found.weft_attention_backward, found.weft_scratch, found.weft_wide()
    )
    pointer, strided = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int64]
    kernels.forward.argtypes = [*strided * 3, *[pointer] * 4, ctypes.c_int]
    kernels.backward.argtypes = [*strided * 3, *[pointer] * 3, *strided * 3, *[pointer] * 2, ctypes.c_int]
    kernels.scratch.argtypes, kernels.scratch.restype = [pointer], ctypes.c_int64
    kernels.forward.restype = kernels.backward.restype = None
    return kernels


def _shape(
    q: Tensor,
    k: Tensor,
    starts: Tensor,
    key_starts: Tensor | None,
    longest: int,
    causal: bool,
    window: int | None,
    scale: float,
    dropout: float,
    seed: Tensor | None,
) -> Shape:
    """It holds addresses of both starts, so the caller must keep these tensors alive."""
    count, width = k.shape[1:]
    wide = open_kernels().wide
    return Shape(
        starts.data_ptr(),
        (starts if key_starts is None else key_starts).data_ptr(),
        starts.shape[0] - 1,
        count,
        q.shape[1] // count,
        width,
        -(-longest // wide) * wide,
        -1 if window is None else window,
        int(causal),
        scale,
        1 - dropout,
        0 if seed is None else int(seed),
        min(round(dropout * 2**32), 2**32 - 1),
    )


def _forward(q: Tensor, k: Tensor, v: Tensor, *view: Any) -> tuple[Tensor, Tensor]:
    q, k, v = map(_rows, (q, k, v))
    out, sums = _forward_shapes(q, k, v)
    kernels, shape = open_kernels(), _shape(q, k, *view)
    scratch = _scratch(kernels, shape)
    kernels.forward(*_strided(q, k, v), *_addresses(out, sums, scratch), ctypes.addressof(shape), threads())
    return out, sums


def _forward_shapes(q: Tensor, k: Tensor, v: Tensor, *view: Any) -> tuple[Tensor, Tensor]:
    """The output, and each row's log Σ exp(score)."""
    return q.new_empty(q.shape), q.new_empty(q.shape[:2])


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, *view: Any
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = map(_rows, (q, k, v))
    grad, out, sums = (x.contiguous() for x in (grad, out, sums))  # kept alive here: C gets addresses only
    grads = _backward_shapes(grad, q, k, v, out, sums)
    kernels, shape = open_kernels(), _shape(q, k, *view)
    scratch = _scratch(kernels, shape)
    known = *_strided(q, k, v), *_addresses(out, sums, grad), *_strided(*grads)
    kernels.backward(*known, scratch.data_ptr(), ctypes.addressof(shape), threads())
    return grads


def _backward_shapes(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, *view: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_attention = operator(
    f"attention(Tensor q, Tensor k, Tensor v, {_VIEW}) -> (Tensor, Tensor)", _forward, _forward_shapes
)
_attention_backward = operator(
    f"attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums, {_VIEW})"
    " -> (Tensor, Tensor, Tensor)",
    _backward,
    _backward_shapes,
)


class Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor | None, *view: Any
    ) -> Tensor:
        """`view`: longest, causal, window, scale, dropout, seed."""
        out: Tensor
        *numbers, seed = view
        out, sums = _attention(q, k, v, starts, key_starts, *numbers, seed)
        ctx.save_for_backward(q, k, v, out, sums, starts, key_starts, seed)
        ctx.numbers = numbers
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *known, seed = ctx.saved_tensors
        return *_attention_backward(grad, *known, *ctx.numbers, seed), *[None] * (3 + len(ctx.numbers))


def _rows(x_THD: Tensor) -> Tensor:
    """Each token's heads contiguous, with any stride between tokens."""
    return x_THD if x_THD.stride()[1:] == (x_THD.shape[2], 1) else x_THD.contiguous()


def _strided(*tensors: Tensor) -> list[int]:
    return [number for x in tensors for number in (x.data_ptr(), x.stride(0))]


def _addresses(*tensors: Tensor) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _scratch(kernels: AttentionKernels, shape: Shape) -> Tensor:
    return torch.empty(threads() * kernels.scratch(ctypes.addressof(shape)), dtype=torch.float32, device="cpu")
