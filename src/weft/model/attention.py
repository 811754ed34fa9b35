"""Attention: the only place where tokens of a sequence interact.

Scaled dot-product (Vaswani et al. 2017, eq. 1):   Attention(Q, K, V) = softmax(Q Kᵀ / √D) V
Multi-head (section 3.2.2):   MultiHead(x) = [head₁; …; head_H] W_O,   head_i = Attention(x W_Qi, x W_Ki, x W_Vi)

All heads' W_Q, W_K, W_V are one matrix `qkv`. With fewer key/value heads than query heads it is grouped-query
attention (Ainslie et al. 2023). T5 does not divide by √D (its initial queries are smaller by √D instead). Qwen3
normalises queries and keys per head.

The batch is flat, and each sequence attends only to itself. One kernel call handles all sequences: see
`gpu_attention.py`, and on CPU `fused_attention.py`. The fallback there (a bias on the scores, other precisions, no
compiler) is one dense call per run of neighbours with equal length (`Packed.runs`). That is 2× faster than a padded
batch with a mask and 15× faster than nested tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.model.dropout import drop
from weft.model.fused_attention import attend_fused, can_attend_fused
from weft.model.fused_layers import prepare_heads, to_float32
from weft.model.gpu_attention import attend_padded, attend_varlen, padding_mask, why_not_varlen
from weft.model.keep import Maps
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import Packed

_Run = tuple[int, int, int]  # neighbouring sequences of one shape: how many, query length, key length


@dataclass(frozen=True)
class AttentionSpec:
    heads: int
    head_width: int
    key_value_heads: int
    bias: bool = True  # of Q, K and V
    out_bias: bool = True
    scaled: bool = True  # divide by √D
    head_norm: NormSpec | None = None  # QK-norm (Dehghani et al. 2023)
    dropout: float = 0.0  # on the attention weights


@dataclass(frozen=True)
class View:
    """Which keys a query attends to, and what is added. `causal`: no later keys. `window`: no keys further away.

    `bias`: added to the scores, by sequence length; includes the causal mask. `rotary`: cos and sin for Q and K.
    """

    causal: bool = False
    window: int | None = None
    bias: dict[int, Tensor] | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)  # computed when needed, once for all layers

    def bias_of(self, length: int) -> Tensor:
        """The bias of a sequence. It depends on distances only, so a longer sequence's begins with it."""
        assert self.bias is not None
        return self.bias[length] if length in self.bias else self.bias[max(self.bias)][:, :length, :length]


class LayerPast(Protocol):
    """The cached keys and values of one decoder layer."""

    def attend(self, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, batch: Packed, view: View, scaled: bool) -> Tensor:
        """Add the new keys and values to the cache. Each query attends to its whole sequence. (T, H, D)."""

    def attend_source(self, q_THD: Tensor, scaled: bool) -> Tensor:
        """Cross-attention of each query to its own source. (T, H, D)."""


class Attention(nn.Module):
    """Self-attention: (T, W) -> (T, W)."""

    def __init__(self, spec: AttentionSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.qkv = nn.Linear(width, (spec.heads + 2 * spec.key_value_heads) * spec.head_width, bias=spec.bias)
        self.out = nn.Linear(spec.heads * spec.head_width, width, bias=spec.out_bias)
        self.query_norm = make_norm(spec.head_norm, spec.head_width) if spec.head_norm else None
        self.key_norm = make_norm(spec.head_norm, spec.head_width) if spec.head_norm else None

    def forward(
        self, x_TW: Tensor, batch: Packed, view: View, past: LayerPast | None = None, maps: Maps | None = None
    ) -> Tensor:
        """`maps`: lists to fill with the weights or scores of each sequence, or with queries, keys and values."""
        spec = self.spec
        heads = self.qkv(x_TW).view(len(x_TW), -1, spec.head_width)
        counts = (spec.heads, spec.key_value_heads, spec.key_value_heads)
        q, k, v = prepare_heads(heads, counts, (self.query_norm, self.key_norm), view.rotary)
        if past is not None:
            return self.out(past.attend(q, k, v, batch, view, spec.scaled).flatten(1))
        dropout = spec.dropout * self.training
        if maps and "heads" in maps:
            maps["heads"] += heads.split(list(counts), dim=1)
        if maps and maps.keys() & {"attention", "scores"}:
            out, weights, scores = attend_with_maps(q, k, v, batch, batch, view, scaled=spec.scaled, dropout=dropout)
            _fill(maps, attention=weights, scores=scores)
        else:
            out = attend(q, k, v, batch, batch, view, scaled=spec.scaled, dropout=dropout)
        return self.out(out.flatten(1))


class CrossAttention(nn.Module):
    """Queries from the decoder's `x`, keys and values from the encoder's output `memory`."""

    def __init__(self, spec: AttentionSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.query = nn.Linear(width, spec.heads * spec.head_width, bias=spec.bias)
        self.key_value = nn.Linear(width, 2 * spec.heads * spec.head_width, bias=spec.bias)
        self.out = nn.Linear(spec.heads * spec.head_width, width, bias=spec.out_bias)

    def forward(
        self,
        x_TW: Tensor,
        batch: Packed,
        memory_TW: Tensor | None,
        source: Packed | None,
        past: LayerPast | None = None,
        maps: Maps | None = None,
    ) -> Tensor:
        """Keys and values are made of `memory`, the encoder's output for `source`, or taken from `past`."""
        spec = self.spec
        q = self.query(x_TW).view(len(x_TW), -1, spec.head_width)
        if past is not None:
            return self.out(past.attend_source(q, spec.scaled).flatten(1))
        assert memory_TW is not None
        assert source is not None
        k, v = self.keys_and_values(memory_TW)
        dropout = spec.dropout * self.training
        if maps and "cross" in maps:
            out, weights, _ = attend_with_maps(q, k, v, batch, source, View(), scaled=spec.scaled, dropout=dropout)
            _fill(maps, cross=weights)
        else:
            out = attend(q, k, v, batch, source, View(), scaled=spec.scaled, dropout=dropout)
        return self.out(out.flatten(1))

    def keys_and_values(self, memory_TW: Tensor) -> tuple[Tensor, Tensor]:
        """(T, H, D) each."""
        k, v = self.key_value(memory_TW).unflatten(-1, (-1, self.spec.head_width)).chunk(2, dim=1)
        return k, v


def attend(
    q_THD: Tensor,
    k_THD: Tensor,
    v_THD: Tensor,
    queries: Packed,
    keys: Packed,
    view: View,
    *,
    scaled: bool,
    dropout: float,
) -> Tensor:
    """Each query sequence attends to its own key sequence. Flat in, flat out: (T, H, D)."""
    scale = q_THD.shape[-1] ** -0.5 if scaled else 1.0
    q_THD, k_THD, v_THD = map(to_float32, (q_THD, k_THD, v_THD))
    if q_THD.device.type != "cpu":
        return _attend_on_gpu(q_THD, k_THD, v_THD, queries, keys, view, scale, dropout)
    if view.bias is None and can_attend_fused(q_THD, k_THD, v_THD, keys, window=view.window, dropout=dropout):
        return attend_fused(
            q_THD, k_THD, v_THD, queries, keys, causal=view.causal, window=view.window, scale=scale, dropout=dropout
        )
    runs = _shared_runs(queries, keys)
    if len(runs) == 1:
        return _attend_dense(q_THD, k_THD, v_THD, runs[0], view, scale, dropout)
    parts = _split_by_run(q_THD, k_THD, v_THD, runs)
    return torch.cat([_attend_dense(q, k, v, run, view, scale, dropout) for q, k, v, run in parts])


def _attend_on_gpu(
    q: Tensor, k: Tensor, v: Tensor, queries: Packed, keys: Packed, view: View, scale: float, dropout: float
) -> Tensor:
    is_biased = view.bias is not None
    if why_not_varlen(q, q.dtype, q.shape[-1], is_biased=is_biased, dropout=dropout) is None:
        reach = -1 if view.window is None else view.window
        return attend_varlen(q, k, v, queries, keys, scale, (reach, 0 if view.causal else reach))
    if len(runs := _shared_runs(queries, keys)) == 1:
        return _attend_dense(q, k, v, runs[0], view, scale, dropout)
    if queries is not keys:  # cross-attention
        return attend_padded(q, k, v, queries, keys, padding_mask(keys, None), scale, dropout)
    if "padded" not in view.masks:  # layers that see alike share it
        view.masks["padded"] = padding_mask(keys, _mask(keys.longest, view, q.device))
    return attend_padded(q, k, v, queries, keys, view.masks["padded"], scale, dropout)


def attend_with_maps(
    q_THD: Tensor,
    k_THD: Tensor,
    v_THD: Tensor,
    queries: Packed,
    keys: Packed,
    view: View,
    *,
    scaled: bool,
    dropout: float,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """As `attend`, by the formula. Returns the weights before dropout and the scores as well, (H, queries, keys) per
    sequence.
    """
    scale = q_THD.shape[-1] ** -0.5 if scaled else 1.0
    outputs, weights, scores = [], list[Tensor](), list[Tensor]()
    for q, k, v, run in _split_by_run(q_THD, k_THD, v_THD, _shared_runs(queries, keys)):
        out, weight, score = _attend_by_formula(*_to_dense(q, k, v, run), view, scale, dropout)
        outputs.append(out.transpose(1, 2).flatten(0, 1))
        weights += weight.unbind(0)
        scores += score.unbind(0)
    return torch.cat(outputs), weights, scores


def _fill(maps: Maps, **found: list[Tensor]) -> None:
    for kind, lists in maps.items():
        lists += found.get(kind, [])


def _shared_runs(queries: Packed, keys: Packed) -> list[_Run]:
    """Runs of neighbours whose query lengths and key lengths are both equal."""
    if queries is keys:
        return [(count, length, length) for count, length in queries.runs]
    runs: list[_Run] = []
    for pair in zip(queries.lengths, keys.lengths, strict=True):
        if runs and runs[-1][1:] == pair:
            runs[-1] = (runs[-1][0] + 1, *pair)
        else:
            runs.append((1, *pair))
    return runs


def _split_by_run(q: Tensor, k: Tensor, v: Tensor, runs: list[_Run]) -> Iterator[tuple[Tensor, Tensor, Tensor, _Run]]:
    # One split each, not a slice per run: the gradient of a split is a single concatenation.
    query_sizes = [count * length for count, length, _ in runs]
    key_sizes = [count * length for count, _, length in runs]
    return zip(q.split(query_sizes), k.split(key_sizes), v.split(key_sizes), runs, strict=True)


def _to_dense(q: Tensor, k: Tensor, v: Tensor, run: _Run) -> tuple[Tensor, Tensor, Tensor]:
    """`count` sequences of one length: flat -> (count, H, L, D)."""
    count, query_length, key_length = run
    dense_q = q.unflatten(0, (count, query_length)).transpose(1, 2)
    dense_k, dense_v = (x.unflatten(0, (count, key_length)).transpose(1, 2) for x in (k, v))
    return dense_q, dense_k, dense_v


def _attend_dense(q: Tensor, k: Tensor, v: Tensor, run: _Run, view: View, scale: float, dropout: float) -> Tensor:
    """`count` sequences of one length in one kernel call; flat in, flat out."""
    query_length = run[1]
    q, k, v = _to_dense(q, k, v, run)
    if dropout and q.device.type == "cpu":  # torch's CPU kernel has no dropout
        out, _, _ = _attend_by_formula(q, k, v, view, scale, dropout)
    else:
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if _is_plain(query_length, view) else _mask(query_length, view, q.device),
            is_causal=view.causal and _is_plain(query_length, view),
            dropout_p=dropout,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    return out.transpose(1, 2).flatten(0, 1)


def _attend_by_formula(
    q: Tensor, k: Tensor, v: Tensor, view: View, scale: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Output (N, H, L, D), weights before dropout and scores (N, H, L, L)."""
    if (groups := q.shape[1] // k.shape[1]) > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = (q * scale) @ k.transpose(-1, -2)
    if view.causal or not _is_plain(q.shape[2], view):
        mask = _mask(q.shape[2], view, q.device)
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(dim=-1)
    return (drop(weights, dropout) if dropout else weights) @ v, weights, scores


def _is_plain(length: int, view: View) -> bool:
    """Whether the kernel's own causal mask is enough: no bias, and the window covers the whole length."""
    return view.bias is None and (view.window is None or length <= view.window + 1)


def _mask(length: int, view: View, device: torch.device) -> Tensor:
    """(H, L, L) to add to the scores, or a boolean (L, L): true where a query sees a key."""
    seen = visibility_mask(length, view.window, causal=view.causal, device=device)
    if view.bias is None:
        return seen
    return view.bias_of(length) if view.window is None else view.bias_of(length).masked_fill(~seen, -torch.inf)


def visibility_mask(length: int, window: int | None, *, causal: bool, device: torch.device | None = None) -> Tensor:
    """(L, L), true where |query − key| ≤ window (and the key is not ahead, if causal)."""
    reach = length if window is None else window
    index = torch.arange(length, device=device)
    distance = index[:, None] - index[None, :]
    return (distance <= reach) & (distance >= (0 if causal else -reach))
