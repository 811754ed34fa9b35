"""Kernels that torch has for GPUs only, by their definitions. The pretend GPU computes with them, on CPU tensors."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def attention(
    q: Tensor, k: Tensor, v: Tensor, q_starts: Tensor, k_starts: Tensor, longest_q: int, longest_k: int,
    is_causal: bool, scale: float, window: Sequence[int], *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of sequences that lie end to end: output (T, H, D), log-sum-exp (H, T), and a state that is not used."""
    assert is_causal == (tuple(window) == (-1, 0))
    _check((q, q_starts, longest_q), (k, k_starts, longest_k), (v, k_starts, longest_k))
    parts = [_attend(*one, scale, window) for one in _sequences(q, k, v, q_starts, k_starts)]
    out, sums = (torch.cat(part, 1) for part in zip(*((w @ x, total) for w, _, _, x, total in parts), strict=True))
    return out.transpose(0, 1).to(q.dtype).contiguous(), sums, torch.zeros(2, dtype=torch.uint64)


def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, q_starts: Tensor, k_starts: Tensor,
    longest_q: int, longest_k: int, is_causal: bool, state: Tensor, scale: float, window: Sequence[int],
) -> tuple[Tensor, ...]:  # fmt: skip
    groups, found = q.shape[1] // k.shape[1], []
    for (a, b), one in zip(pairwise(q_starts.tolist()), _sequences(q, k, v, q_starts, k_starts), strict=True):
        weights, queries, keys, values, _ = _attend(*one, scale, window)
        upstream = grad[a:b].float().transpose(0, 1)
        of_weights = upstream @ values.mT
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        found.append((of_scores @ keys, of_scores.mT @ queries, weights.mT @ upstream))
    of_q, of_k, of_v = (torch.cat(part, 1).transpose(0, 1) for part in zip(*found, strict=True))
    joined = (one.unflatten(1, (k.shape[1], groups)).sum(2) for one in (of_k, of_v))
    return tuple(one.to(q.dtype).contiguous() for one in (of_q, *joined))


def _check(*sides: tuple[Tensor, Tensor, int]) -> None:
    """What flash attention demands."""
    for x, starts, longest in sides:
        lengths = starts.diff().tolist()
        assert starts.dtype == torch.int32 and starts.is_contiguous()
        assert type(longest) is int and longest == max(lengths) and len(x) == sum(lengths)
        assert x.dtype in (torch.float16, torch.bfloat16) and x.dtype == sides[0][0].dtype
        assert x.shape[-1] % 8 == 0 and x.shape[-1] <= 256 and x.stride(-1) == 1


def _sequences(*given: Tensor) -> list[tuple[Tensor, ...]]:
    q, k, v, q_starts, k_starts = given
    ends = zip(pairwise(q_starts.tolist()), pairwise(k_starts.tolist()), strict=True)
    return [(q[a:b], k[c:d], v[c:d]) for (a, b), (c, d) in ends]


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, window: Sequence[int]) -> tuple[Tensor, ...]:
    """Weights (H, queries, keys), q, k and v in fp32 with as many heads, and the log-sum-exp."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.float().transpose(0, 1) for x in (q, *(x.repeat_interleave(groups, 1) for x in (k, v))))
    distance = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None] - (k.shape[1] - q.shape[1])
    left, right = (one if one >= 0 else q.shape[1] + k.shape[1] for one in window)
    scores = (q @ k.mT * scale).masked_fill((distance < -left) | (distance > right), -torch.inf)
    return scores.softmax(-1), q, k, v, scores.logsumexp(-1)


def lstm_cell(
    of_input: Tensor, of_state: Tensor, c: Tensor, input_bias: Tensor | None = None, state_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """h, c and the activated gates."""
    gates = sum((bias for bias in (input_bias, state_bias) if bias is not None), of_input + of_state)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(
    grad_h: Tensor | None, grad_c: Tensor | None, before: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = gates.chunk(4, 1)
    of_h = torch.zeros_like(after) if grad_h is None else grad_h
    of_c = of_h * o * (1 - after.tanh() ** 2) + (0 if grad_c is None else grad_c)
    parts = (
        of_c * g * i * (1 - i),
        of_c * before * f * (1 - f),
        of_c * i * (1 - g**2),
        of_h * after.tanh() * o * (1 - o),
    )
    of_gates = torch.cat(parts, 1)
    return of_gates, of_c * f, of_gates.sum(0) if has_bias else None


def kernel_for(func: Any) -> Callable[..., Any]:
    """`func`, or its definition here."""
    return _KERNELS.get(func.name(), func)


_KERNELS: dict[str, Callable[..., Any]] = {
    "torch_attn::_varlen_attn": attention,
    "torch_attn::_varlen_attn_backward": attention_backward,
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
}
