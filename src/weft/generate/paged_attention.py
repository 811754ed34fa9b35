"""Attention over pages in torch: on GPUs, in other precisions, and without a C compiler.

The network runs as it was trained, with this as the past of its layers. Pages of a step's rows are gathered into dense
keys and values, with a mask for what a query does not see. Rows that read the same number of tokens share a call. A GPU
gets the numbers of all pages in one copy per step, not in several per layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.generate.kernels import PAGE_TOKENS
from weft.generate.layer_kernel import RowTables
from weft.generate.pages import PagePool
from weft.model.attention import View
from weft.model.block import Block
from weft.model.packed import Packed
from weft.model.stack import Stack
from weft.model.transfer import moved


@dataclass(frozen=True)
class _Pages:
    """The pages that some rows read: of their own tokens, or of their sources."""

    columns: int  # of the longest row
    ends: Tensor  # (R,) how many columns each row has
    pages: Tensor  # (R, pages of the longest)


@dataclass(frozen=True)
class _Group:
    """Sequences of the batch with equal numbers of new tokens."""

    index: Tensor  # (T,) their tokens in the batch
    positions: Tensor  # (R, new tokens)
    own: _Pages
    source: _Pages | None
    masks: dict[int | None, Tensor] = field(init=False, default_factory=dict)  # by window, for all layers


@dataclass(frozen=True)
class _Step:
    """Moved to the device in one copy."""

    new_pages: Tensor  # (T,) where the keys and values of each token go
    new_columns: Tensor
    groups: Mapping[int, _Group]


class PagedPast:
    """The past of a step, for `Network.forward_with_past`."""

    is_empty = False

    def __init__(
        self,
        stack: Stack,
        own: RowTables,
        source: RowTables | None,
        rows: Sequence[int],
        begins: Sequence[int],
        counts: Sequence[int],
        source_lengths: Sequence[int],
    ) -> None:
        """`rows`: of each sequence of the batch. `begins`: tokens it has read before; `counts`: new ones."""
        self.stack, self.own, self.source = stack, own, source
        self.layers = [_LayerPages(self, layer) for layer in range(stack.spec.layers)]
        at, first, new = np.asarray(rows), np.asarray(begins), np.asarray(counts)
        starts = np.concatenate([[0], np.cumsum(new)])
        positions = np.concatenate([np.arange(a, a + n) for a, n in zip(begins, counts, strict=True)])
        pages = own.tables[np.repeat(at, new), positions // PAGE_TOKENS]
        groups = {}
        for count in np.unique(new).tolist():
            group = np.flatnonzero(new == count)
            after = np.arange(count)
            groups[count] = _Group(
                _whole((starts[group][:, None] + after).ravel()),
                _whole(first[group][:, None] + after),
                _pages_of(own, at[group], first[group] + count),
                None if source is None else _pages_of(source, at[group], np.asarray(source_lengths)[group]),
            )
        step = _Step(_whole(pages), _whole(positions % PAGE_TOKENS), groups)
        self.step = moved(step, own.pool.store.device)


def _whole(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int64))


def _pages_of(tables: RowTables, rows: np.ndarray, ends: np.ndarray) -> _Pages:
    columns = int(ends.max())
    return _Pages(columns, _whole(ends), _whole(tables.tables[rows, : -(-columns // PAGE_TOKENS)]))


class _LayerPages:
    """One layer's part."""

    def __init__(self, past: PagedPast, layer: int) -> None:
        self.past, self.layer = past, layer

    def attend(self, q: Tensor, k: Tensor, v: Tensor, batch: Packed, view: View, scaled: bool) -> Tensor:
        step, pool = self.past.step, self.past.own.pool
        keys, values = _parts(pool, self.layer)
        keys[step.new_pages, :, :, step.new_columns] = k.to(keys.dtype)
        values[step.new_pages, :, step.new_columns] = v.to(values.dtype)
        out = torch.empty_like(q)
        for group in step.groups.values():
            if view.window not in group.masks:
                group.masks[view.window] = self._mask(group, view.window, q)
            mask = group.masks[view.window]
            out[group.index] = _attend_rows(q[group.index], pool, group.own, self.layer, mask, scaled)
        return out

    def attend_source(self, q: Tensor, scaled: bool) -> Tensor:
        assert self.past.source is not None
        out = torch.empty_like(q)
        for group in self.past.step.groups.values():
            assert group.source is not None
            sees = torch.arange(group.source.columns, device=q.device) < group.source.ends[:, None]
            mask = _as_bias(sees[:, None, None, :].expand(-1, 1, group.positions.shape[1], -1), q)
            pool = self.past.source.pool
            out[group.index] = _attend_rows(q[group.index], pool, group.source, self.layer, mask, scaled)
        return out

    def _mask(self, group: _Group, window: int | None, q: Tensor) -> Tensor:
        """(rows, heads or 1, count, columns) to add to the scores."""
        behind = group.positions[:, :, None] - torch.arange(group.own.columns, device=q.device)
        sees = (behind >= 0 if window is None else (behind >= 0) & (behind <= window))[:, None]
        relative = self.past.stack.relative
        if relative is None:
            return _as_bias(sees, q)
        of_distance = relative.of_last(group.own.columns).to(q.dtype).flip(1)  # (H, distance)
        return of_distance[:, behind.clamp(min=0)].transpose(0, 1).masked_fill(~sees, -torch.inf)


def _as_bias(sees: Tensor, q: Tensor) -> Tensor:
    return torch.zeros(sees.shape, dtype=q.dtype, device=q.device).masked_fill(~sees, -torch.inf)


def _attend_rows(q_THD: Tensor, pool: PagePool, read: _Pages, layer: int, mask: Tensor, scaled: bool) -> Tensor:
    """Queries of several rows, the same number each, over the columns of their rows."""
    keys, values = _parts(pool, layer)
    k = keys[read.pages].permute(0, 2, 1, 4, 3).flatten(2, 3)[:, :, : read.columns]  # (R, P, H, D, 16) -> (R, H, C, D)
    v = values[read.pages].permute(0, 2, 1, 3, 4).flatten(2, 3)[:, :, : read.columns]
    # Pages are used again: what is left in them is masked, but even 0 times NaN is NaN.
    unseen = torch.arange(read.columns, device=k.device) >= read.ends[:, None]
    k, v = (part.masked_fill(unseen[:, None, :, None], 0) for part in (k, v))
    q = q_THD.unflatten(0, (len(read.ends), -1)).transpose(1, 2)
    scale = q.shape[-1] ** -0.5 if scaled else 1.0
    grouped = q.shape[1] != k.shape[1]
    mask = mask.to(q.dtype)
    out = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), mask, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(0, 1)


def _parts(pool: PagePool, layer: int) -> tuple[Tensor, Tensor]:
    """Views of a layer's keys (pages, H, D, 16) and values (pages, H, 16, D)."""
    (heads, width), begin = pool.shape.heads[layer], pool.shape.begins[layer]
    size = heads * width * PAGE_TOKENS
    keys, values = (pool.store[:, at : at + size] for at in (begin, begin + size))
    return keys.view(-1, heads, width, PAGE_TOKENS), values.view(-1, heads, PAGE_TOKENS, width)


def store_source(stack: Stack, memory_TW: Tensor, pool: PagePool, table: np.ndarray) -> None:
    """Store the keys and values of the encoder's output in every layer."""
    tokens = np.arange(len(memory_TW))
    at = {"pages": _whole(table[tokens // PAGE_TOKENS]), "columns": _whole(tokens % PAGE_TOKENS)}
    pages, columns = moved(at, memory_TW.device).values()
    for layer, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        k, v = block.cross.keys_and_values(memory_TW)
        keys, values = _parts(pool, layer)
        keys[pages, :, :, columns] = k.to(keys.dtype)
        values[pages, :, columns] = v.to(values.dtype)
