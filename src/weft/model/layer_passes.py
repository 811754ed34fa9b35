"""The functions of `layers.c` as torch operators, and as autograd functions.

An operator allocates its outputs and passes their addresses to C. For fake tensors it only allocates. Outputs of an
operator never share memory with its inputs, as torch demands. The autograd functions `Rms` and `Layer` do return their
input again, so that one backward pass adds both gradients. Dropout's seed is a tensor, so drawing it is part of a
traced graph.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.compiled import open_library, operator, threads

_SOURCE = Path(__file__).with_name("layers.c")
_POINTER, _NUMBER, _REAL, _BITS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint32
_ARGUMENTS: dict[str, list[Any]] = {
    "rms": [*[_POINTER] * 4, *[_NUMBER] * 2, _REAL],
    "rms_backward": [*[_POINTER] * 7, *[_NUMBER] * 2],
    "layer": [*[_POINTER] * 7, *[_NUMBER] * 2, _REAL, _REAL, _BITS, _BITS],
    "layer_backward": [*[_POINTER] * 9, *[_NUMBER] * 2, _REAL, _BITS, _BITS],
    "gate": [*[_POINTER] * 2, *[_NUMBER] * 2],
    "gate_backward": [*[_POINTER] * 3, *[_NUMBER] * 2],
    "heads": [*[_POINTER] * 7, *[_NUMBER] * 5, _REAL],
    "heads_backward": [*[_POINTER] * 9, *[_NUMBER] * 5],
}
_RunKernel = Callable[[str, Sequence[Tensor | None], Sequence[Any]], None]


@functools.cache
def library() -> ctypes.CDLL:
    found = open_library(_SOURCE)
    for name, arguments in _ARGUMENTS.items():
        function = getattr(found, f"weft_{name}")
        function.argtypes, function.restype = [*arguments, ctypes.c_int], None
    found.weft_chunks.restype = _NUMBER
    return found


def _run(name: str, tensors: Sequence[Tensor | None], numbers: Sequence[Any]) -> None:
    inputs = [None if x is None else x.contiguous() for x in tensors]  # outputs are contiguous already
    addresses = [None if x is None else x.data_ptr() for x in inputs]
    getattr(library(), f"weft_{name}")(*addresses, *numbers, threads())


def _run_nothing(name: str, tensors: Sequence[Tensor | None], numbers: Sequence[Any]) -> None:
    """For fake tensors."""


def _operator(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        return operator(schema, functools.partial(function, _run), functools.partial(function, _run_nothing))

    return made


@_operator("rms(Tensor x, Tensor gain, float epsilon) -> (Tensor, Tensor)")
def _rms(run: _RunKernel, x: Tensor, gain: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    y, scales = x.new_empty(x.shape), x.new_empty(x.shape[:1])
    run("rms", [x, gain, y, scales], [*x.shape, epsilon])
    return y, scales


@_operator("rms_backward(Tensor grad, Tensor x, Tensor gain, Tensor scales, Tensor? more) -> (Tensor, Tensor)")
def _rms_backward(
    run: _RunKernel, grad: Tensor, x: Tensor, gain: Tensor, scales: Tensor, more: Tensor | None
) -> tuple[Tensor, Tensor]:
    out, gains = x.new_empty(x.shape), _partial(gain)
    run("rms_backward", [grad, x, gain, scales, more, out, gains], x.shape)
    return out, gains.sum(0)


@_operator(
    "layer(Tensor x, Tensor? s, Tensor gain, Tensor? bias, float epsilon, float dropout, Tensor? seed)"
    " -> (Tensor, Tensor, Tensor)"
)
def _layer(
    run: _RunKernel,
    x: Tensor,
    s: Tensor | None,
    gain: Tensor,
    bias: Tensor | None,
    epsilon: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns y, x + drop(s) (empty without s), and each row's mean and scale."""
    y, total, stats = x.new_empty(x.shape), x.new_empty(0 if s is None else x.shape), x.new_empty(x.shape[0], 2)
    if run is _run:
        run("layer", [x, s, gain, bias, total, y, stats], [*x.shape, epsilon, *_draw(dropout, seed)])
    return y, total, stats


@_operator(
    "layer_backward(Tensor grad, Tensor total, Tensor gain, Tensor stats, Tensor? more, float dropout, Tensor? seed)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
def _layer_backward(
    run: _RunKernel,
    grad: Tensor,
    total: Tensor,
    gain: Tensor,
    stats: Tensor,
    more: Tensor | None,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the sum, of s (empty without dropout), of gain and bias."""
    out, gains, biases = total.new_empty(total.shape), _partial(gain), _partial(gain)
    less = total.new_empty(0 if seed is None else total.shape)
    if run is _run:
        given = [grad, total, gain, stats, more, out, None if seed is None else less, gains, biases]
        run("layer_backward", given, [*total.shape, *_draw(dropout, seed)])
    return out, less, gains.sum(0), biases.sum(0)


@_operator("gate(Tensor up) -> Tensor")
def _gate(run: _RunKernel, up: Tensor) -> Tensor:
    y = up.new_empty(up.shape[0], up.shape[1] // 2)
    run("gate", [up, y], y.shape)
    return y


@_operator("gate_backward(Tensor grad, Tensor up) -> Tensor")
def _gate_backward(run: _RunKernel, grad: Tensor, up: Tensor) -> Tensor:
    out = up.new_empty(up.shape)
    run("gate_backward", [grad, up, out], grad.shape)
    return out


@_operator(
    "heads(Tensor x, Tensor? query_gain, Tensor? key_gain, Tensor cos, Tensor sin, SymInt queries, SymInt keys, "
    "float epsilon) -> (Tensor, Tensor)"
)
def _heads(
    run: _RunKernel,
    x: Tensor,
    query_gain: Tensor | None,
    key_gain: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    queries: int,
    keys: int,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    y, scales = x.new_empty(x.shape), x.new_empty(x.shape[0], queries + keys)
    run("heads", [x, query_gain, key_gain, cos, sin, y, scales], [x.shape[0], queries, keys, *x.shape[1:], epsilon])
    return y, scales


@_operator(
    "heads_backward(Tensor grad, Tensor x, Tensor? query_gain, Tensor? key_gain, Tensor cos, Tensor sin, "
    "Tensor scales, SymInt queries, SymInt keys) -> (Tensor, Tensor)"
)
def _heads_backward(
    run: _RunKernel,
    grad: Tensor,
    x: Tensor,
    query_gain: Tensor | None,
    key_gain: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    scales: Tensor,
    queries: int,
    keys: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of both gains (2, width)."""
    out, gains = x.new_empty(x.shape), x.new_empty(library().weft_chunks(), 2, x.shape[2])
    given = [grad, x, query_gain, key_gain, cos, sin, scales, out, gains]
    run("heads_backward", given, [x.shape[0], queries, keys, *x.shape[1:]])
    return out, gains.sum(0)


def _partial(gain: Tensor) -> Tensor:
    """Partial sums of a weight's gradient; see layers.c."""
    return gain.new_empty(library().weft_chunks(), *gain.shape)


def _draw(dropout: float, seed: Tensor | None) -> tuple[float, int, int]:
    """The probability to keep, the seed, and the threshold below which a hash means zero."""
    return 1 - dropout, 0 if seed is None else int(seed), min(round(dropout * 2**32), 2**32 - 1)


class Rms(torch.autograd.Function):
    """(norm(x), x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        y, scales = _rms(x, gain, epsilon)
        ctx.save_for_backward(x, gain, scales)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, more: Tensor | None) -> tuple[Tensor, Tensor, None]:
        x, gain, scales = ctx.saved_tensors
        return *_rms_backward(torch.zeros_like(x) if grad is None else grad, x, gain, scales, more), None


class Layer(torch.autograd.Function):
    """(norm(sum), sum), where sum = x + drop(s), or x without s."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, s: Tensor | None, gain: Tensor, bias: Tensor | None, epsilon: float, dropout: float
    ) -> tuple[Tensor, Tensor]:
        seed = torch.randint(2**32, ()) if dropout else None
        y, total, stats = _layer(x, s, gain, bias, epsilon, dropout, seed)
        total = x if s is None else total
        ctx.save_for_backward(total, gain, stats, seed)
        ctx.dropout, ctx.is_sum, ctx.has_bias = dropout, s is not None, bias is not None
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, more: Tensor | None) -> tuple[Tensor | None, ...]:
        total, gain, stats, seed = ctx.saved_tensors
        grad = torch.zeros_like(total) if grad is None else grad
        out, less, gains, biases = _layer_backward(grad, total, gain, stats, more, ctx.dropout, seed)
        of_sum = None if not ctx.is_sum else out if seed is None else less
        return out, of_sum, gains, biases if ctx.has_bias else None, None, None


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, up: Tensor) -> Tensor:
        ctx.save_for_backward(up)
        y: Tensor = _gate(up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        out: Tensor = _gate_backward(grad, *ctx.saved_tensors)
        return out


class Heads(torch.autograd.Function):
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
        y: Tensor
        y, scales = _heads(x, query_gain, key_gain, cos, sin, *counts[:2], epsilon)
        ctx.save_for_backward(x, query_gain, key_gain, cos, sin, scales)
        ctx.counts = counts[:2]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        known = ctx.saved_tensors
        out, gains = _heads_backward(grad, *known, *ctx.counts)
        return out, *(gains if known[1] is not None else (None, None)), None, None, None, None
