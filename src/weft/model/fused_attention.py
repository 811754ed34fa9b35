"""Attention on CPU over all sequences of a batch in one kernel call, forward and backward, with attention dropout.

torch's CPU kernel takes sequences of one length and has no dropout. Many lengths need many calls, each of a dozen
operations if there is dropout. `attention.c` takes any lengths in one call: two to four times as fast with dropout, up
to three times for short sequences without it, equally fast for long ones. The result of a sequence does not depend on
its neighbours, to the bit.
"""

import functools

import torch
from torch import Tensor

from weft.compiled import are_plain, constant_when_traced, load_tried
from weft.model.attention_kernel import Attend, AttentionKernels, open_kernels
from weft.model.attention_trials import ATTENTION_TRIALS
from weft.model.packed import Packed

_TORCH_IS_AS_FAST_ABOVE = 512  # tokens, without dropout and window


def can_attend_fused(
    q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, keys: Packed, *, window: int | None, dropout: float
) -> bool:
    """Whether `attend_fused` takes these tensors and is the faster way."""
    if not are_plain(q_THD, k_THD, v_THD):
        return False
    longest = keys.longest
    if not dropout and longest > _TORCH_IS_AS_FAST_ABOVE and (window is None or longest <= window + 1):
        return False
    wide = register_width()
    return wide > 0 and q_THD.shape[-1] % wide == 0


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
            raise ValueError("queries, keys and values must belong to the same sequences")
    seed = torch.randint(2**32, ()) if dropout else None
    key_starts = None if queries is keys else keys.starts
    mixed: Tensor = Attend.apply(
        q_THD, k_THD, v_THD, queries.starts, key_starts, keys.longest, causal, window, scale, dropout, seed
    )
    return mixed


@constant_when_traced
def register_width() -> int:
    """Floats per vector register. Head widths must be a multiple. 0: no kernels."""
    kernels = load_attention_kernels()
    return 0 if kernels is None else kernels.wide


@functools.cache
def load_attention_kernels() -> AttentionKernels | None:
    return load_tried("attention", open_kernels, ATTENTION_TRIALS)
