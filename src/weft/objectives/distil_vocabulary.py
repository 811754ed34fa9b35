"""The KL divergence to a teacher over the vocabulary, fused with the output layers of both.

    soft · T² KL(p_T ‖ q_T) + hard · −log q[target],     p, q: teacher and student

As in `model/loss.py`, the gradient of a block of rows is computed in the forward pass, and no block's logits are kept:
the logits of teacher and student for one batch of a large vocabulary would not fit into memory.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from weft.model.heads import Head
from weft.model.loss import rows_of_a_block


def vocabulary_kl(
    head: Head,
    prepared_NW: Tensor,
    teacher_head: Head,
    teacher_prepared_NW: Tensor,
    targets_N: Tensor,
    *,
    temperature: float = 1.0,
    soft: float = 1.0,
    hard: float = 0.0,
) -> Tensor:
    """Summed over the rows, which come from the `prepare` of both heads. `soft` and `hard` weigh the two losses."""
    weight, bias = head.out.weight, head.out.bias
    device = prepared_NW.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.no_grad():
        teacher = teacher_head.out.weight.to(dtype), _to(teacher_head.out.bias, dtype)
    settings = temperature, soft, hard, dtype, torch.is_grad_enabled()
    with torch.autocast(device, enabled=False):
        return _VocabularyKL.apply(prepared_NW, weight, bias, teacher_prepared_NW, *teacher, targets_N, settings)


class _VocabularyKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        y: Tensor,
        teacher_weight: Tensor,
        teacher_bias: Tensor | None,
        targets: Tensor,
        settings: tuple[float, float, float, torch.dtype, bool],
    ) -> Tensor:
        temperature, soft, hard, dtype, with_gradients = settings
        wants = [with_gradients and tensor is not None and tensor.requires_grad for tensor in (x, weight, bias)]
        grad_x = torch.zeros_like(x) if wants[0] else None
        grad_weight = torch.zeros_like(weight) if wants[1] else None
        grad_bias = weight.new_zeros(len(weight)) if wants[2] else None
        total = x.new_zeros(())
        rows = rows_of_a_block(x.device, len(weight))
        x, y, matrix, shift = x.to(dtype), y.to(dtype), weight.to(dtype), _to(bias, dtype)
        for start in range(0, len(x), rows):
            block = slice(start, start + rows)
            ours = F.linear(x[block], matrix, shift).to(total.dtype)
            theirs = F.linear(y[block], teacher_weight, teacher_bias).to(total.dtype)
            loss, grad = _block_loss(ours, theirs, targets[block], temperature, soft, hard)
            total += loss
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(dtype)
            if grad_x is not None:
                grad_x[block] = grad @ matrix
            if grad_weight is not None:
                grad_weight += (grad.T @ x[block]).to(weight.dtype)
        ctx.grads = (grad_x, grad_weight, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        grads = tuple(None if grad is None else grad * upstream for grad in ctx.grads)
        return (*grads, None, None, None, None, None)


def _block_loss(
    ours: Tensor, theirs: Tensor, targets: Tensor, temperature: float, soft: float, hard: float
) -> tuple[Tensor, Tensor]:
    """The loss of these logits and its gradient."""
    loss, grad = ours.new_zeros(()), torch.zeros_like(ours)
    if soft:
        p, q = (logits.div(temperature).log_softmax(-1) for logits in (theirs, ours))
        likely = p.exp()
        loss += soft * temperature**2 * (likely * (p - q)).sum()
        grad += soft * temperature * (q.exp() - likely)
    if hard:
        q, right = ours.log_softmax(-1), targets[:, None]
        loss -= hard * q.gather(1, right).sum()
        grad += (hard * q.exp()).scatter_add_(1, right, q.new_full((1, 1), -hard).expand_as(right))
    return loss, grad


def _to(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.detach().to(dtype)
