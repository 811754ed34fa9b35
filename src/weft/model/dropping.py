"""Causal attention with dropout on the weights, on CPU, where no fused kernel has it.

    O = (P ⊙ M) V,   P = softmax(Q Kᵀ),   M = 0 or 1 / (1 − p)

Queries go by tiles, and a tile looks at no key after its own end. So about half of the scores are never computed,
drawn for or kept, and only the small square on the diagonal needs a mask; 1.6 times as fast as the whole square.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.model.dropout import kept

TILE = 64  # queries; 128 is as fast, 32 slower


def causal_dropping(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """(B, H, L, D) each, queries scaled already -> (B, H, L, D)."""
    q, k = q.to(v.dtype), k.to(v.dtype)  # rotation leaves fp32 behind under autocast, where v is bfloat16
    mixed: Tensor = _CausalDropping.apply(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), dropout)
    return mixed.view(q.shape)


class _CausalDropping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        ahead = torch.full((TILE, TILE), -torch.inf, dtype=q.dtype).triu_(1)
        mixed = torch.empty_like(q)
        by_tile = []
        for start, end in _tiles(q):
            scores = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))
            scores[:, :, start:end].add_(ahead[: end - start, : end - start])
            weights = scores.softmax(dim=-1)
            mask = kept(weights.shape, dropout, weights.dtype)
            mixed[:, start:end] = torch.bmm(torch.mul(weights, mask, out=scores), v[:, :end])
            by_tile += [weights, mask]
        ctx.save_for_backward(q, k, v, *by_tile)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        q, k, v, *by_tile = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        tiles = zip(_tiles(q), by_tile[::2], by_tile[1::2], strict=True)
        for (start, end), weights, mask in tiles:
            grad_tile = grad[:, start:end]
            grad_v[:, :end] += torch.bmm((weights * mask).transpose(1, 2), grad_tile)
            grad_weights = torch.bmm(grad_tile, v[:, :end].transpose(1, 2)).mul_(mask)
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, q.dtype)
            grad_q[:, start:end] = torch.bmm(grad_scores, k[:, :end])
            grad_k[:, :end] += torch.bmm(grad_scores.transpose(1, 2), q[:, start:end])
        return grad_q, grad_k, grad_v, None


def _tiles(q: Tensor) -> list[tuple[int, int]]:
    return [(start, min(start + TILE, q.shape[1])) for start in range(0, q.shape[1], TILE)]
