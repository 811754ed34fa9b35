"""`attention.c` is compared with its formula once per process, before it is used.

The random numbers come from generators of their own: the default generator of a training run is not advanced.
"""

from itertools import pairwise

import torch
from torch import Tensor

from weft.model.attention_kernel import Attend, AttentionKernels

_LENGTHS, _SCALE = (33, 7), 0.2  # one longer than a tile of queries
_HEADS, _GROUPS = 2, 2  # key heads; query heads per key head


def _is_right(kernels: AttentionKernels, *, causal: bool, window: int | None, dropout: float) -> bool:
    """With the identity matrix as values, the output is the attention weights: it shows the dropout mask."""
    generator, width = torch.Generator().manual_seed(0), -(-max(_LENGTHS) // kernels.wide) * kernels.wide
    q, k, v, wanted = (
        torch.randn(sum(_LENGTHS), heads, width, generator=generator, dtype=torch.float32, requires_grad=True)
        for heads in (_HEADS * _GROUPS, _HEADS, _HEADS, _HEADS * _GROUPS)
    )
    starts = torch.tensor([0, _LENGTHS[0], sum(_LENGTHS)])

    def ours(values: Tensor, dropout: float) -> Tensor:
        seed = torch.tensor(7) if dropout else None
        out: Tensor = Attend.apply(q, k, values, starts, None, max(_LENGTHS), causal, window, _SCALE, dropout, seed)
        return out

    identity = torch.cat([torch.eye(length, width) for length in _LENGTHS])[:, None].expand(-1, _HEADS, -1)
    plain, dropped = ours(identity, 0.0).detach(), ours(identity, dropout).detach()
    kept = torch.where(plain > 0, dropped / plain, 1.0)
    formula = []
    for begin, end in pairwise(starts.tolist()):
        a, b, c = (x[begin:end].transpose(0, 1) for x in (q, k, v))
        scores = a @ b.repeat_interleave(_GROUPS, 0).mT * _SCALE
        behind = torch.arange(end - begin)[:, None] - torch.arange(end - begin)
        hidden = (behind < 0) & causal if window is None else (behind.abs() > window) | ((behind < 0) & causal)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1) * kept[begin:end, :, : end - begin].transpose(0, 1)
        formula.append((weights @ c.repeat_interleave(_GROUPS, 0)).transpose(0, 1))
    both = [[out, *torch.autograd.grad(out, (q, k, v), wanted)] for out in (ours(v, dropout), torch.cat(formula))]
    share = float((kept == 0).float().sum() / (plain > 0).float().sum())
    is_dropped = abs(share - dropout) <= dropout / 2
    return is_dropped and all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*both, strict=True))


def _grouped_heads(kernels: AttentionKernels) -> bool:
    return _is_right(kernels, causal=False, window=None, dropout=0.0)


def _causal(kernels: AttentionKernels) -> bool:
    return _is_right(kernels, causal=True, window=None, dropout=0.0)


def _window(kernels: AttentionKernels) -> bool:
    return all(_is_right(kernels, causal=causal, window=5, dropout=0.0) for causal in (False, True))


def _dropout(kernels: AttentionKernels) -> bool:
    return _is_right(kernels, causal=False, window=None, dropout=0.3)


ATTENTION_TRIALS = (_grouped_heads, _causal, _window, _dropout)
