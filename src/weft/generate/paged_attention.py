"""Attention over pages in torch: on GPUs, in other precisions, and without a C compiler.

The network runs as it was trained, with this as the past of its layers. Pages of a step's rows are gathered into dense
keys and values, with a mask for what a query does not see. Rows that read the same number of tokens share a call.
"""

from collections.abc import Sequence

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
        self.rows, self.source_lengths = np.asarray(rows), source_lengths
        self.begins, self.counts = np.asarray(begins), np.asarray(counts)
        self.layers = [_LayerPages(self, layer) for layer in range(stack.spec.layers)]
        device = own.pool.store.device
        positions = np.concatenate([np.arange(a, a + n) for a, n in zip(begins, counts, strict=True)])
        owners = np.repeat(self.rows, self.counts)
        pages = own.tables[owners, positions // PAGE_TOKENS]
        self.new_pages = torch.as_tensor(pages.astype(np.int64), device=device)
        self.new_columns = torch.as_tensor(positions % PAGE_TOKENS, device=device)
        # Sequences with equal counts, as indices into the batch.
        self.groups = [np.flatnonzero(self.counts == count) for count in np.unique(self.counts)]
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])


class _LayerPages:
    """One layer's part."""

    def __init__(self, past: PagedPast, layer: int) -> None:
        self.past, self.layer = past, layer

    def attend(self, q: Tensor, k: Tensor, v: Tensor, batch: Packed, view: View, scaled: bool) -> Tensor:
        past = self.past
        keys, values = _parts(past.own.pool, self.layer)
        keys[past.new_pages, :, :, past.new_columns] = k.to(keys.dtype)
        values[past.new_pages, :, past.new_columns] = v.to(values.dtype)
        out = torch.empty_like(q)
        for group in past.groups:
            count = int(past.counts[group[0]])
            index = torch.as_tensor((past.starts[group][:, None] + np.arange(count)).ravel(), device=q.device)
            ends = past.begins[group] + count
            mask = self._mask(ends, count, view.window, q)
            out[index] = _attend_rows(q[index], past.own, past.rows[group], ends, self.layer, mask, scaled)
        return out

    def attend_source(self, q: Tensor, scaled: bool) -> Tensor:
        past = self.past
        assert past.source is not None
        out = torch.empty_like(q)
        for group in past.groups:
            count = int(past.counts[group[0]])
            index = torch.as_tensor((past.starts[group][:, None] + np.arange(count)).ravel(), device=q.device)
            lengths = np.asarray(past.source_lengths)[group]
            columns = torch.arange(int(lengths.max()), device=q.device)
            sees = columns[None] < torch.as_tensor(lengths, device=q.device)[:, None]
            mask = sees[:, None, None, :].expand(-1, 1, count, -1)
            bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -torch.inf)
            rows = past.rows[group]
            out[index] = _attend_rows(q[index], past.source, rows, lengths, self.layer, bias, scaled)
        return out

    def _mask(self, ends: np.ndarray, count: int, window: int | None, q: Tensor) -> Tensor:
        """(rows, heads or 1, count, columns) to add to the scores."""
        columns = torch.arange(int(ends.max()), device=q.device)
        position = torch.as_tensor(ends[:, None] - count + np.arange(count), device=q.device)
        behind = position[:, :, None] - columns
        sees = behind >= 0 if window is None else (behind >= 0) & (behind <= window)
        relative = self.past.stack.relative
        if relative is None:
            bias = torch.zeros(sees.shape, dtype=q.dtype, device=q.device)[:, None]
        else:
            of_distance = relative.of_last(int(ends.max())).to(q.dtype).flip(1)  # (H, distance)
            bias = of_distance[:, behind.clamp(min=0)].transpose(0, 1)
        return bias.masked_fill(~sees[:, None], -torch.inf)


def _attend_rows(
    q_THD: Tensor, tables: RowTables, rows: np.ndarray, ends: np.ndarray, layer: int, mask: Tensor, scaled: bool
) -> Tensor:
    """Queries of several rows, the same number each, over the columns of their rows, which end at `ends`."""
    columns = int(ends.max())
    keys, values = _parts(tables.pool, layer)
    used = -(-columns // PAGE_TOKENS)
    index = torch.as_tensor(tables.tables[rows, :used].astype(np.int64), device=q_THD.device)
    k = keys[index].permute(0, 2, 1, 4, 3).flatten(2, 3)[:, :, :columns]  # (R, P, H, D, 16) -> (R, H, C, D)
    v = values[index].permute(0, 2, 1, 3, 4).flatten(2, 3)[:, :, :columns]
    # Pages are used again: what is left in them is masked, but even 0 times NaN is NaN.
    unseen = torch.arange(columns, device=k.device) >= torch.as_tensor(ends, device=k.device)[:, None]
    k, v = (part.masked_fill(unseen[:, None, :, None], 0) for part in (k, v))
    q = q_THD.unflatten(0, (len(rows), -1)).transpose(1, 2)
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
    pages = torch.as_tensor(table[tokens // PAGE_TOKENS].astype(np.int64), device=memory_TW.device)
    columns = torch.as_tensor(tokens % PAGE_TOKENS, device=memory_TW.device)
    for layer, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        k, v = block.cross.keys_and_values(memory_TW)
        keys, values = _parts(pool, layer)
        keys[pages, :, :, columns] = k.to(keys.dtype)
        values[pages, :, columns] = v.to(values.dtype)
