"""Attention on a GPU: one kernel call for all sequences, whatever their lengths.

    16 bits, no bias, no dropout     torch's variable-length kernel (flash attention): no padding
    otherwise                        a dense call; sequences of unequal length are padded for it

Flash attention computes in 16 bits only, takes no bias on the scores (T5's relative positions), and torch's version for
variable lengths has no dropout on the weights.
"""

from functools import cache
from inspect import signature

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.compiled import constant_when_traced
from weft.devices import has_flash_attention
from weft.model.packed import Packed


def why_not_varlen(x: Tensor, dtype: torch.dtype, head_width: int, *, is_biased: bool, dropout: float) -> str | None:
    """Why the variable-length kernel does not apply; None if it does. `x`: any tensor on the device."""
    if not x.is_cuda:
        return "it needs CUDA"
    if dtype not in (torch.float16, torch.bfloat16):
        return "it computes in 16 bits: choose precision bfloat16"
    if is_biased:
        return "it takes no bias of relative positions"
    if dropout:
        return "it has no dropout on attention weights"
    if head_width % 8 or head_width > 256:
        return f"the head width, {head_width}, is not a multiple of 8 up to 256"
    if not _takes_windows():
        return f"torch {torch.__version__} has none that takes windows and grouped heads"
    return None if _has_flash(x.device) else "the GPU is older than the Ampere generation"


@constant_when_traced
@cache  # called in every layer of every step
def _takes_windows() -> bool:
    """Whether this torch's variable-length kernel supports windows and grouped heads: early versions do not."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"scale", "window_size", "enable_gqa"} <= signature(varlen_attn).parameters.keys()


@constant_when_traced
@cache
def _has_flash(device: torch.device) -> bool:
    return has_flash_attention(device)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, queries: Packed, keys: Packed, scale: float, window: tuple[int, int]
) -> Tensor:
    """`window`: how many tokens to the left and to the right a query sees; -1: all."""
    from torch.nn.attention.varlen import varlen_attn  # needs CUDA and half precision

    out = varlen_attn(
        q,
        k,
        v,
        queries.cuda_starts,
        keys.cuda_starts,
        queries.longest,
        keys.longest,
        scale=scale,
        window_size=window,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    assert isinstance(out, Tensor)  # a tuple only with return_aux
    return out


def attend_padded(
    q: Tensor, k: Tensor, v: Tensor, queries: Packed, keys: Packed, mask: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Flat in, flat out. `mask`: as `padding_mask` returns it."""
    out = F.scaled_dot_product_attention(
        _padded(q, queries),
        _padded(k, keys),
        _padded(v, keys),
        attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype),
        dropout_p=dropout,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).flatten(0, 1).index_select(0, queries.padded_rows)


def padding_mask(keys: Packed, of_longest: Tensor | None) -> Tensor:
    """What hides the padding of the keys. `of_longest`: the mask of self-attention for the longest sequence, boolean
    (L, L) or a bias (H, L, L).

    Padding must see something, because a softmax over nothing is NaN, and so would be all gradients: in self-attention
    it sees itself.
    """
    place = torch.arange(keys.longest, device=keys.starts.device)
    seen = (place < keys.starts.diff()[:, None])[:, None, None]  # (S, 1, 1, L)
    if of_longest is None:
        return seen
    seen = seen | (place == place[:, None])
    return of_longest & seen if of_longest.dtype == torch.bool else torch.where(seen, of_longest, -torch.inf)


def _padded(x_THD: Tensor, batch: Packed) -> Tensor:
    """(T, H, D) -> (S, H, longest, D), with zeros after the end of a sequence."""
    count = len(batch.lengths)
    rows = x_THD.new_zeros(count * batch.longest, *x_THD.shape[1:]).index_copy(0, batch.padded_rows, x_THD)
    return rows.unflatten(0, (count, batch.longest)).transpose(1, 2)
