"""Attention on CPU over all sequences of a batch in one call, forward and backward, with dropout on the weights.

torch has a kernel for sequences of one length, which cannot drop. Many lengths are as many calls, each of a dozen
operations with dropout. `attention.c` takes them all: two to four times as fast with dropout, up to three times for
short sequences without it, as fast for long ones. What the kernel gives for a sequence does not depend on its
neighbours, to the bit.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.compiled import FAULTS, Kernel, open_library, threads
from weft.model.packed import Packed, pack

SOURCE = Path(__file__).with_name("attention.c")
LONG = 512  # tokens; beyond, without dropout and without a window, torch's kernel is as fast


class Kernels(NamedTuple):
    forward: Kernel
    backward: Kernel
    scratch: Kernel
    wide: int  # floats in a register: heads are as many, or a multiple


class Shape(ctypes.Structure):
    """As in attention.c."""

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


def is_fused(q: Tensor, v: Tensor, keys: Packed, *, window: int | None, dropout: float) -> bool:
    """Whether this is done here."""
    if q.device.type != "cpu" or q.dtype != torch.float32 or v.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    longest = max(keys.lengths, default=0)
    if not dropout and longest > LONG and (window is None or longest <= window + 1):
        return False
    kernels = load_kernels()
    return kernels is not None and q.shape[-1] % kernels.wide == 0


def attend_fused(
    q_THD: Tensor,
    k_THD: Tensor,
    v_THD: Tensor,
    queries: Packed,
    keys: Packed,
    *,
    causal: bool,
    window: int | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Each query sequence over its own key sequence; flat in, flat out (T, H, D)."""
    for x, batch in ((q_THD, queries), (k_THD, keys), (v_THD, keys)):
        if len(x) != sum(batch.lengths) or len(batch.lengths) != len(keys.lengths):
            raise ValueError("queries, keys and values must be those of the same sequences")
    kernels = load_kernels()
    assert kernels is not None
    seed = int(torch.randint(2**32, ())) if dropout else 0
    return _attend(kernels, q_THD, k_THD, v_THD, queries, keys, causal, window, scale, dropout, seed)


def _attend(
    kernels: Kernels,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packed,
    keys: Packed,
    causal: bool,
    window: int | None,
    scale: float,
    dropout: float,
    seed: int,
) -> Tensor:
    count, width = k.shape[1:]
    shape = Shape(
        queries.starts.data_ptr(),
        keys.starts.data_ptr(),
        len(keys.lengths),
        count,
        q.shape[1] // count,
        width,
        -(-max(keys.lengths, default=0) // kernels.wide) * kernels.wide,
        -1 if window is None else window,
        int(causal),
        scale,
        1 - dropout,
        seed,
        min(round(dropout * 2**32), 2**32 - 1),
    )
    mixed: Tensor = _Attention.apply(_rows(q), _rows(k), _rows(v), queries.starts, keys.starts, shape, kernels)
    return mixed


def _rows(x_THD: Tensor) -> Tensor:
    """The heads of a token end to end, in whatever distance tokens are."""
    return x_THD if x_THD.stride()[1:] == (x_THD.shape[2], 1) else x_THD.contiguous()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor, shape: Shape, kernels: Kernels
    ) -> Tensor:
        out, sums = q.new_empty(q.shape), q.new_empty(q.shape[:2])
        scratch = _scratch(kernels, shape)
        kernels.forward(*_strided(q, k, v), *_places(out, sums, scratch), ctypes.addressof(shape), threads())
        ctx.save_for_backward(q, k, v, out, sums, starts, key_starts)  # the shape points to the last two
        ctx.shape, ctx.kernels = shape, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums, *_ = ctx.saved_tensors
        grad = grad.contiguous()  # held here: only its address goes on
        grads = [x.new_empty(x.shape) for x in (q, k, v)]
        known, scratch = _places(out, sums, grad), _scratch(ctx.kernels, ctx.shape)
        ctx.kernels.backward(
            *_strided(q, k, v), *known, *_strided(*grads), scratch.data_ptr(), ctypes.addressof(ctx.shape), threads()
        )
        return *grads, None, None, None, None


def _strided(*tensors: Tensor) -> list[int]:
    return [number for x in tensors for number in (x.data_ptr(), x.stride(0))]


def _places(*tensors: Tensor) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _scratch(kernels: Kernels, shape: Shape) -> Tensor:
    return torch.empty(threads() * kernels.scratch(ctypes.addressof(shape)), dtype=torch.float32, device="cpu")


@functools.cache
def load_kernels() -> Kernels | None:
    """None where there is no compiler, no cache, or not the right numbers: then it goes without."""
    try:
        kernels = _open(open_library(SOURCE))
        with (
            torch.device("cpu"),
            torch.autocast("cpu", enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            return kernels if _is_right(kernels) else None
    except FAULTS:
        return None


def _open(found: ctypes.CDLL) -> Kernels:
    kernels = Kernels(found.weft_attention, found.weft_attention_backward, found.weft_scratch, found.weft_wide())
    pointer, strided = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int64]
    kernels.forward.argtypes = [*strided * 3, *[pointer] * 4, ctypes.c_int]
    kernels.backward.argtypes = [*strided * 3, *[pointer] * 3, *strided * 3, *[pointer] * 2, ctypes.c_int]
    kernels.scratch.argtypes, kernels.scratch.restype = [pointer], ctypes.c_int64
    kernels.forward.restype = kernels.backward.restype = None
    return kernels


def _is_right(kernels: Kernels) -> bool:
    """Tried before it is trusted, with numbers of its own: a training run's dropout must not notice."""
    chance, width = torch.Generator().manual_seed(0), 2 * kernels.wide
    q, k, v, wanted = (
        torch.randn(40, 1, width, generator=chance, dtype=torch.float32, requires_grad=True) for _ in range(4)
    )
    batch = pack([[0] * length for length in (33, 7)])
    ours = _attend(kernels, q, k, v, batch, batch, causal=False, window=None, scale=0.2, dropout=0.0, seed=0)
    parts = zip(*(batch.split(x[:, 0]) for x in (q, k, v)), strict=True)
    plain = torch.cat([(a @ b.T * 0.2).softmax(-1) @ c for a, b, c in parts]).unsqueeze(1)
    both = [[out, *torch.autograd.grad(out, (q, k, v), wanted)] for out in (ours, plain)]
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*both, strict=True))
