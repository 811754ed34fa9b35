"""Norms, gates and rotations on CPU, each with its gradient in one pass over memory (`layers.c`).

torch puts RMSNorm, SwiGLU, dropout and a residual sum together from several operations, and each of them reads and
writes everything once more. Between the small products of a small model that is a third of a training step. Every
function here is its formula where there is no compiler, no fp32, or no CPU.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from weft.compiled import FAULTS, open_library, threads
from weft.model.dropout import drop
from weft.model.positions import rotate

SOURCE = Path(__file__).with_name("layers.c")
Norm = nn.LayerNorm | nn.RMSNorm
POINTER, NUMBER, REAL, BITS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint32
ARGUMENTS: dict[str, list[Any]] = {
    "rms": [*[POINTER] * 4, *[NUMBER] * 2, REAL],
    "rms_backward": [*[POINTER] * 7, *[NUMBER] * 2],
    "layer": [*[POINTER] * 7, *[NUMBER] * 2, REAL, REAL, BITS, BITS],
    "layer_backward": [*[POINTER] * 9, *[NUMBER] * 2, REAL, BITS, BITS],
    "gate": [*[POINTER] * 2, *[NUMBER] * 2],
    "gate_backward": [*[POINTER] * 3, *[NUMBER] * 2],
    "heads": [*[POINTER] * 7, *[NUMBER] * 5, REAL],
    "heads_backward": [*[POINTER] * 9, *[NUMBER] * 5],
}


def is_fused(*tensors: Tensor) -> bool:
    """Whether a pass over these is done here."""
    return (
        all(x.device.type == "cpu" and x.dtype == torch.float32 and x.is_contiguous() for x in tensors)
        and not torch.compiler.is_compiling()
        and load_library() is not None
    )


def widened(x: Tensor) -> Tensor:
    """What a product gave in bfloat16, under autocast: on CPU the passes after it are in fp32."""
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and load_library() is not None:
        return x.float()
    return x


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    if x.dim() == 2 and is_fused(x, gain):
        return _Rms.apply(x, gain, epsilon)[0]
    return F.rms_norm(x, gain.shape, gain, epsilon)


def branch(norm: Norm, x_TW: Tensor) -> tuple[Tensor, Tensor]:
    """(norm(x), x): the gradients of both ways meet in one pass."""
    if x_TW.dim() != 2 or not is_fused(x_TW, *_weights(norm)):
        return norm(x_TW), x_TW
    if isinstance(norm, nn.RMSNorm):
        return _Rms.apply(x_TW, norm.weight, norm.eps)
    return _Layer.apply(x_TW, None, norm.weight, norm.bias, norm.eps, 0.0)


def norm_of_sum(norm: Norm, x_TW: Tensor, s_TW: Tensor, dropout: float) -> Tensor:
    """norm(x + drop(s))."""
    s_TW = widened(s_TW)
    if not isinstance(norm, nn.LayerNorm) or x_TW.dim() != 2 or not is_fused(x_TW, s_TW, *_weights(norm)):
        return norm(x_TW + (drop(s_TW, dropout) if dropout else s_TW))
    normal, _ = _Layer.apply(x_TW, s_TW, norm.weight, norm.bias, norm.eps, dropout)
    return normal


def gate(up_TI: Tensor) -> Tensor:
    """SwiGLU's bend of the two halves: silu(a) b."""
    up_TI = widened(up_TI)
    if up_TI.dim() == 2 and is_fused(up_TI):
        return _Gate.apply(up_TI)
    a, b = up_TI.chunk(2, dim=-1)
    return F.silu(a) * b


def ready_heads(
    heads_THD: Tensor,
    counts: Sequence[int],
    norms: tuple[Norm | None, Norm | None],
    table: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values out of their joint projection; the first two normalised and turned."""
    heads_THD = widened(heads_THD)
    gains = [None if norm is None else norm.weight for norm in norms]
    tensors = [heads_THD, *(gain for gain in gains if gain is not None), *(table or ())]
    if table is not None and is_fused(*tensors) and not any(isinstance(norm, nn.LayerNorm) for norm in norms):
        epsilon = 0.0 if norms[0] is None else norms[0].eps
        q, k, v = _Heads.apply(heads_THD, *gains, *table, tuple(counts), epsilon).split(list(counts), dim=1)
        return q, k, v
    q, k, v = heads_THD.split(list(counts), dim=1)
    if norms[0] is not None and norms[1] is not None:
        q, k = norms[0](q), norms[1](k)
    if table is not None:
        q, k = rotate(q, table), rotate(k, table)
    # Under autocast norms and rotations give fp32; kernels of half precision want all three alike.
    return q.to(v.dtype), k.to(v.dtype), v


def _weights(norm: Norm) -> list[Tensor]:
    return [norm.weight, norm.bias] if isinstance(norm, nn.LayerNorm) and norm.bias is not None else [norm.weight]


class _Rms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        y, scales = torch.empty_like(x), x.new_empty(len(x))
        _call("rms", [x, gain, y, scales], [*x.shape, epsilon])
        ctx.save_for_backward(x, gain, scales)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, more: Tensor | None) -> tuple[Tensor, Tensor, None]:
        x, gain, scales = ctx.saved_tensors
        out, gains = torch.empty_like(x), _partial(x.shape[1:])
        grad = torch.zeros_like(x) if grad is None else grad.contiguous()
        more = None if more is None else more.contiguous()
        _call("rms_backward", [grad, x, gain, scales, more, out, gains], x.shape)
        return out, gains.sum(0), None


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, s: Tensor | None, gain: Tensor, bias: Tensor | None, epsilon: float, dropout: float
    ) -> tuple[Tensor, Tensor]:
        y, stats = torch.empty_like(x), x.new_empty(len(x), 2)
        total = x if s is None else torch.empty_like(x)
        draw = _draw(dropout)
        _call("layer", [x, s, gain, bias, total, y, stats], [*x.shape, epsilon, *draw])
        ctx.save_for_backward(total, gain, stats)
        ctx.draw, ctx.is_sum, ctx.has_bias = draw, s is not None, bias is not None
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, more: Tensor | None) -> tuple[Tensor | None, ...]:
        total, gain, stats = ctx.saved_tensors
        grad = torch.zeros_like(total) if grad is None else grad.contiguous()
        out, (gains, biases) = torch.empty_like(total), (_partial(gain.shape) for _ in range(2))
        less = torch.empty_like(total) if ctx.is_sum and ctx.draw[0] < 1 else None
        known = [grad, total, gain, stats, None if more is None else more.contiguous()]
        _call("layer_backward", [*known, out, less, gains, biases], [*total.shape, *ctx.draw])
        of_sum = None if not ctx.is_sum else out if less is None else less
        return out, of_sum, gains.sum(0), biases.sum(0) if ctx.has_bias else None, None, None


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, up: Tensor) -> Tensor:
        y = up.new_empty(len(up), up.shape[1] // 2)
        _call("gate", [up, y], y.shape)
        ctx.save_for_backward(up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (up,) = ctx.saved_tensors
        out = torch.empty_like(up)
        _call("gate_backward", [grad.contiguous(), up, out], grad.shape)
        return out


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        query_gain: Tensor | None,
        key_gain: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        counts: tuple[int, ...],
        epsilon: float,
    ) -> Tensor:
        y, scales = torch.empty_like(x), x.new_empty(len(x), counts[0] + counts[1])
        _call("heads", [x, query_gain, key_gain, cos, sin, y, scales], [len(x), *counts[:2], *x.shape[1:], epsilon])
        ctx.save_for_backward(x, query_gain, key_gain, cos, sin, scales)
        ctx.counts = counts
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *known = ctx.saved_tensors
        out, gains = torch.empty_like(x), _partial((2, x.shape[2]))
        _call("heads_backward", [grad.contiguous(), x, *known, out, gains], [len(x), *ctx.counts[:2], *x.shape[1:]])
        of_gains = gains.sum(0) if known[0] is not None else (None, None)
        return out, *of_gains, None, None, None, None


def _draw(dropout: float) -> tuple[float, int, int]:
    """The share that stays, a seed, and the number below which a hash drops."""
    return 1 - dropout, int(torch.randint(2**32, ())) if dropout else 0, min(round(dropout * 2**32), 2**32 - 1)


def _partial(shape: Sequence[int]) -> Tensor:
    """Gradients of weights before they are added up; see layers.c."""
    return torch.empty(_library().weft_chunks(), *shape, dtype=torch.float32, device="cpu")


def _call(name: str, tensors: Sequence[Tensor | None], numbers: Sequence[float]) -> None:
    library = _library()
    places = [None if x is None else x.data_ptr() for x in tensors]
    getattr(library, f"weft_{name}")(*places, *numbers, threads())


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """None where there is no compiler, no cache, or not the right numbers: then it goes without."""
    try:
        with (
            torch.device("cpu"),
            torch.autocast("cpu", enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            return _library() if _is_right() else None
    except FAULTS:
        return None


@functools.cache
def _library() -> ctypes.CDLL:
    library = open_library(SOURCE)
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, f"weft_{name}")
        function.argtypes, function.restype = [*arguments, ctypes.c_int], None
    library.weft_chunks.restype = NUMBER
    return library


def _is_right() -> bool:
    """Tried before it is trusted, with numbers of its own: a training run's dropout must not notice."""
    chance = torch.Generator().manual_seed(0)
    x, s, gain, bias, wanted = (
        torch.randn(shape, generator=chance, dtype=torch.float32, requires_grad=True)
        for shape in ((5, 34), (5, 34), (34,), (34,), (5, 34))
    )
    a, b = x.chunk(2, dim=-1)
    pairs = (
        (_Rms.apply(x, gain, 1e-6)[0], F.rms_norm(x, gain.shape, gain, 1e-6)),
        (_Layer.apply(x, s, gain, bias, 1e-6, 0.0)[0], F.layer_norm(x + s, gain.shape, gain, bias, 1e-6)),
        (_Gate.apply(x), F.silu(a) * b),
    )
    both = [[[out, *torch.autograd.grad(out, (x,), wanted[:, : out.shape[1]])] for out in pair] for pair in pairs]
    return all(
        torch.allclose(one, other, atol=1e-4) for ours, plain in both for one, other in zip(ours, plain, strict=True)
    )
