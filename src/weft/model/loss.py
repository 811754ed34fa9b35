"""Cross-entropy over the vocabulary, fused with the matrix product of the output layer.

−Σ log softmax(x Wᵀ + b)[target], with label smoothing ε (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4):
the target's probability is 1 − ε, and ε is spread evenly over the vocabulary.

The gradient of the logits is softmax − target, which is known in the forward pass. So the backward products are
computed there, block by block of rows, and no block's logits or gradients are kept. Three separate operations would
keep four tensors of (rows, vocabulary) and cost a small BERT a tenth of its step on CPU.

If tensor parallel peers share the vocabulary, each computes the logits of its own tokens (`sliced_loss.py`).
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.devices import memory_of
from weft.model import sliced_loss
from weft.model.heads import Head
from weft.model.peers import enter
from weft.model.sliced_loss import VocabularySlice

_BLOCK_LOGITS = 2**24  # at a time: 64 MB in fp32; smaller blocks read the matrix more often
_GPU_SHARE = 1 / 64  # of a GPU's memory, for the logits of a block


def vocabulary_loss(
    head: Head, prepared_NW: Tensor, targets_N: Tensor, *, scale: float = 1.0, smoothing: float = 0.0
) -> Tensor:
    """`scale` × the summed loss of the rows from `head.prepare`. For the mean, scale = 1 / rows."""
    weight, bias = head.out.weight, head.out.bias
    cut = head.out if isinstance(head.out, VocabularySlice) else None
    if cut is not None:
        prepared_NW = enter(prepared_NW, cut.peers)
    device = prepared_NW.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with torch.autocast(device, enabled=False):  # `dtype` sets the precision of the products
        return _VocabularyLoss.apply(
            prepared_NW, weight, bias, targets_N, scale, smoothing, dtype, torch.is_grad_enabled(), cut
        )


def rows_of_a_block(device: torch.device, vocabulary: int) -> int:
    """How many rows of logits are computed at a time."""
    return max(1, logits_of_a_block(memory_of(device)) // vocabulary)


def logits_of_a_block(gpu_memory: int | None) -> int:
    """A GPU's products are faster the larger they are, and its memory is not shared with anybody."""
    return _BLOCK_LOGITS if gpu_memory is None else max(_BLOCK_LOGITS, int(gpu_memory * _GPU_SHARE) // 4)


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        smoothing: float,
        dtype: torch.dtype,
        with_gradients: bool,
        cut: VocabularySlice | None,
    ) -> Tensor:
        sum_of_losses, gradient_in_place = _sum_of_losses, _gradient_in_place
        if cut is not None:
            sum_of_losses = partial(sliced_loss.sum_of_losses, cut)
            gradient_in_place = partial(sliced_loss.gradient_in_place, cut)
        wants = [with_gradients and tensor is not None and tensor.requires_grad for tensor in (x, weight, bias)]
        grad_x = torch.empty_like(x) if wants[0] else None
        grad_weight: Tensor | None = None
        grad_bias = weight.new_zeros(weight.shape[0]) if wants[2] else None
        total = x.new_zeros((), dtype=torch.float32)
        # All peers must cut the rows alike.
        rows = rows_of_a_block(x.device, weight.shape[0] if cut is None else cut.most_tokens)
        x, matrix, shift = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        for start in range(0, len(x), rows):
            block, right = x[start : start + rows], targets[start : start + rows, None]
            logits = torch.nn.functional.linear(block, matrix, shift).float()
            loss, sums = sum_of_losses(logits, right, smoothing)
            total += loss
            if not any(wants):
                continue
            grad = gradient_in_place(logits, sums, right, scale, smoothing)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(dtype)
            if grad_x is not None:
                grad_x[start : start + rows] = grad @ matrix
            if wants[1]:
                part = (grad.T @ block).to(weight.dtype)
                grad_weight = part if grad_weight is None else grad_weight.add_(part)
        if wants[1] and grad_weight is None:  # no rows; processes that add up gradients must all have the same ones
            grad_weight = torch.zeros_like(weight)
        ctx.grads = (grad_x, grad_weight, grad_bias)
        return total * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.grads is None:
            raise RuntimeError("the vocabulary loss can be backpropagated only once")
        grads, ctx.grads = ctx.grads, None  # a loss that is kept for logging does not hold these
        if upstream.device.type != "cpu" or upstream != 1.0:  # loss.backward() passes exactly 1
            grads = tuple(None if grad is None else grad * upstream for grad in grads)
        return (*grads, None, None, None, None, None, None)


def _sum_of_losses(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss, and each row's sum of exponentials (rows, 1). Overwrites logits by exp(logits − maximum)."""
    wanted = logits.gather(1, right)
    if smoothing:
        wanted = (1 - smoothing) * wanted + smoothing * logits.mean(1, keepdim=True)
    largest = logits.amax(1, keepdim=True)
    sums = logits.sub_(largest).exp_().sum(1, keepdim=True)
    return (largest + sums.log() - wanted).sum(), sums


def _gradient_in_place(exponentials: Tensor, sums: Tensor, right: Tensor, scale: float, smoothing: float) -> Tensor:
    """scale × (softmax − target)."""
    grad = exponentials.mul_(scale / sums)
    if smoothing:
        grad -= scale * smoothing / grad.shape[1]
    return grad.scatter_add_(1, right, grad.new_full((1, 1), scale * (smoothing - 1)).expand_as(right))
