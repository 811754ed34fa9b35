"""The decoder's layers described to `kernels.c`, which runs a layer of a whole step in one call."""

import ctypes
import functools
import threading
import time
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.compiled import KernelsMissing, load_tried, threads, why_missing
from weft.generate.kernels import PAGE_TOKENS, GenerationKernels, load_generation_kernels
from weft.generate.layouts import KernelLayout, LaidOutLinear
from weft.generate.pages import PagePool, PageShape
from weft.inference.layer import TABLE_ROWS, LayerKernel, rotary_angles
from weft.inference.matrices import KernelMatrix, KernelNorm, NormStruct, data_address
from weft.inference.thread_choice import ThreadChoice
from weft.model.attention import AttentionSpec
from weft.model.block import Block, BlockSpec
from weft.model.feedforward import FeedForwardSpec
from weft.model.heads import Head
from weft.model.norm import NormSpec
from weft.model.packed import pack
from weft.model.positions import RelativeBias, Rotary
from weft.model.stack import Stack, StackSpec


class _PlacedLayer(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("layer", "cos", "sin")),
        *((name, c_int64) for name in ("layer_at", "source_at", "window")),
    )


class _Pages(ctypes.Structure):
    _fields_ = (("store", c_void_p), ("page_size", c_int64), ("tables", c_void_p), ("most_pages", c_int64))


class _Step(ctypes.Structure):
    _fields_ = (
        ("pages", _Pages),
        ("source", _Pages),
        *((name, c_void_p) for name in ("rows", "positions", "source_lengths", "bias")),
        *((name, c_int64) for name in ("bias_stride", "bias_last")),
        *((name, c_void_p) for name in ("work", "scratch", "scores")),
        *((name, c_int64) for name in ("score_stride", "entries")),
        *((name, c_int) for name in ("threads", "is_half")),
    )


class _Output(ctypes.Structure):
    _fields_ = (
        ("norm", NormStruct),
        ("matrix", c_void_p),
        ("picks", c_void_p),
        *((name, c_int64) for name in ("count", "width")),
        ("scale", c_float),
        ("out", c_void_p),
    )


class RowTables(NamedTuple):
    """A pool and the pages of each row in it: `tables` (rows, most pages), int32."""

    pool: PagePool
    tables: np.ndarray


class Entries(NamedTuple):
    """The tokens of a step: the row and the position of each."""

    rows: np.ndarray  # int32
    positions: np.ndarray  # int64
    longest: int  # columns of the longest row, or source, that is read


class KernelStack:
    """A decoder stack in C: hidden states of a step's entries in, hidden states out."""

    def __init__(self, stack: Stack, kernels: GenerationKernels, head: Head | None = None, *, int8: bool) -> None:
        """`head`: the language-model head, run with the layers if it is a single matrix."""
        self.spec, self.positions, self.kernels = stack.spec, stack.positions, kernels
        blocks = [block for block in stack.blocks if isinstance(block, Block)]
        self.layers = [LayerKernel(block, "int8" if int8 else "fp32") for block in blocks]
        matrices = [matrix for layer in self.layers for matrix in layer.matrices.values()]
        self.is_quantized = any(matrix.quantizes for matrix in matrices)
        self.relative: RelativeBias | None = stack.relative
        self.norm = KernelNorm(stack.norm)
        self.head: KernelMatrix | None = None
        self.scale = 1.0
        layout = head.out.layout if head is not None and isinstance(head.out, LaidOutLinear) else None
        if head is not None and isinstance(layout, KernelLayout) and (head.dense, head.norm) == (None, None):
            self.head, self.scale = layout.matrix, head.spec.scale or 1.0
        self.tokens, self.source = PageShape.of_tokens(stack), PageShape.of_source(stack) if stack.spec.cross else None
        self.angles: dict[tuple[int, float], tuple[Tensor, Tensor]] = {}
        self.lock, self.threads = threading.Lock(), ThreadChoice()
        self.placed: tuple[int, ctypes.Array] | None = None
        self.bias: Tensor | None = None
        self.work = torch.empty(0)
        self.scratch, self.scores = torch.empty(0, dtype=torch.uint8), torch.empty(0)

    def run(
        self,
        x_TW: Tensor,
        entries: Entries,
        own: RowTables,
        source: RowTables | None,
        lengths: Tensor,
        picks: np.ndarray,
    ) -> Tensor:
        """The logits of the entries `picks`; without a head their hidden states. Changes `x_TW`. `lengths`: of each
        row's source. The caller holds `lock`: scratch memory is shared.
        """
        count, width = len(entries.positions), x_TW.shape[1]
        wanted = self.threads.pick(count, threads())
        self._make_room(count, entries.longest, wanted)
        bias, last = self._bias(entries.longest)
        pages = _Pages(own.pool.store.data_ptr(), own.pool.shape.numbers, own.tables.ctypes.data, own.tables.shape[1])
        of_source = _Pages(None, 0, None, 0)
        if source is not None:
            tables = source.tables
            of_source = _Pages(
                source.pool.store.data_ptr(), source.pool.shape.numbers, tables.ctypes.data, tables.shape[1]
            )
        step = _Step(
            pages, of_source, entries.rows.ctypes.data, entries.positions.ctypes.data, lengths.data_ptr(),
            data_address(bias), 0 if bias is None else bias.shape[1], last,
            self.work.data_ptr(), self.scratch.data_ptr(), self.scores.data_ptr(), self.scores.shape[1], count, wanted,
            own.pool.store.dtype is torch.float16,
        )  # fmt: skip
        placed = self._placed(entries.longest)
        out = x_TW.new_empty(len(picks), width if self.head is None else self.head.width)
        matrix, scale = (None, 1.0) if self.head is None else (self.head.address, self.scale)
        output = _Output(self.norm.struct, matrix, picks.ctypes.data, len(picks), width, scale, out.data_ptr())
        layers = ctypes.addressof(placed), len(self.layers)
        begin = time.perf_counter()
        self.kernels.run(*layers, ctypes.addressof(step), ctypes.addressof(output), x_TW.data_ptr())
        self.threads.note(count, wanted, time.perf_counter() - begin)
        return out

    def _placed(self, longest: int) -> ctypes.Array:
        """The layers with their tables, made again when these have grown."""
        if self.placed is None or longest > self.placed[0]:
            size = max(TABLE_ROWS, 2 * longest)
            parts = []
            for number, layer in enumerate(self.layers):
                window, cos, sin = self._view(number, size)
                source_at = 0 if self.source is None else self.source.begins[number]
                parts.append(_PlacedLayer(layer.address, cos, sin, self.tokens.begins[number], source_at, window))
            self.placed = size, (_PlacedLayer * len(parts))(*parts)
        return self.placed[1]

    def store_source(self, memory_TW: Tensor, pool: PagePool, table: np.ndarray) -> None:
        """Store the keys and values of the encoder's output in every layer. They are computed once per source."""
        assert self.source is not None
        for layer, block in enumerate(self.spec.blocks):
            both = KernelLayout(self.layers[layer].matrices["cross_key_value"], self.kernels)(memory_TW)
            heads = both.unflatten(-1, (-1, block.attention.head_width)).chunk(2, dim=1)
            k, v = (part.contiguous() for part in heads)
            self.kernels.store(
                k.data_ptr(), v.data_ptr(), pool.store.data_ptr(), pool.shape.numbers, table.ctypes.data,
                self.source.begins[layer], len(k), *k.shape[1:], pool.store.dtype is torch.float16,
            )  # fmt: skip

    def _make_room(self, entries: int, longest: int, wanted: int) -> None:
        work = entries * max(_work_per_entry(layer) for layer in self.layers)
        if len(self.work) < work:
            self.work = torch.empty(work, dtype=torch.float32)
        matrices = [matrix for layer in self.layers for matrix in layer.matrices.values()]
        matrices += [] if self.head is None else [self.head]
        if deep := [matrix.depth for matrix in matrices if matrix.quantizes]:
            scratch = self.kernels.quantized_bytes(entries, max(deep))
            if len(self.scratch) < scratch:
                self.scratch = torch.empty(scratch, dtype=torch.uint8)
        columns = (longest // PAGE_TOKENS + 2) * PAGE_TOKENS
        if self.scores.dim() < 2 or self.scores.shape[0] < wanted or self.scores.shape[1] < columns:
            self.scores = torch.empty(wanted, 2 * columns, dtype=torch.float32)

    def _bias(self, longest: int) -> tuple[Tensor | None, int]:
        """(H, distances) with the column of distance 0. A page more on both sides: the kernel reads whole pages."""
        if self.relative is None:
            return None, 0
        last = PAGE_TOKENS + longest
        if self.bias is None or self.bias.shape[1] < last + PAGE_TOKENS:
            size = -(-2 * last // TABLE_ROWS) * TABLE_ROWS
            bias = self.relative.of_last(size).float()
            self.bias = torch.nn.functional.pad(bias, (PAGE_TOKENS, PAGE_TOKENS)).contiguous()
        return self.bias, self.bias.shape[1] - PAGE_TOKENS - 1

    def _view(self, layer: int, longest: int) -> tuple[int, int | None, int | None]:
        """The window and the addresses of cos and sin of this layer."""
        local, positions = self.spec.local, self.positions
        is_local = local is not None and layer in local.layers
        window = local.window if local is not None and is_local else -1
        if not isinstance(positions, Rotary):
            return window, None, None
        if local is not None and is_local:
            positions = Rotary(positions.size, local.theta)
        key = self.spec.blocks[layer].attention.head_width, positions.theta
        known = self.angles.get(key)
        if known is None or len(known[0]) < longest:
            known = self.angles[key] = rotary_angles(positions, longest, key[0])
        return window, known[0].data_ptr(), known[1].data_ptr()


def _work_per_entry(layer: LayerKernel) -> int:
    """Floats of scratch memory."""
    sizes = {name: matrix.width for name, matrix in layer.matrices.items()}
    inside = [sizes["qkv"] + layer.matrices["out"].depth, sizes["up"] + layer.matrices["down"].depth]
    inside += [2 * sizes["cross_query"]] if "cross_query" in sizes else []
    return layer.matrices["qkv"].depth + max(inside)


def kernel_stack_for(stack: Stack, head: Head, *, int8: bool) -> KernelStack | None:
    """None if the weights are not fp32 on a CPU, or there is no C compiler."""
    kernels = load_generation_kernels()
    plain = all(part.dtype == torch.float32 and part.device.type == "cpu" for part in stack.parameters())
    if kernels is None or not plain or not _runs_right():
        return None
    return KernelStack(stack, kernels, head, int8=int8)


def missing_generation_kernels() -> dict[str, str | None]:
    """Why each generation kernel is not used on this machine; None if it is used."""
    load_generation_kernels(), _runs_right()
    return {name: why_missing(name) for name in ("generation", "generation layers")}


@functools.cache
def _runs_right() -> bool:
    """Tests the kernel on small layers once. The reason for a failure is kept."""
    return load_tried("generation layers", _kernels_of_layers, (_pre_norm, _post_norm)) is not None


def _kernels_of_layers() -> GenerationKernels:
    kernels = load_generation_kernels()
    if kernels is None:
        raise KernelsMissing(str(why_missing("generation")))
    return kernels


def _pre_norm(kernels: GenerationKernels) -> bool:
    """Grouped-query attention with head norms and rotary positions; a gated feed-forward layer."""
    attention = AttentionSpec(2, 4, 1, head_norm=NormSpec("rms"))
    spec = BlockSpec(attention, FeedForwardSpec(6, "silu", gated=True), NormSpec("rms"), "pre")
    return _is_right(kernels, spec, Rotary(40))


def _post_norm(kernels: GenerationKernels) -> bool:
    return _is_right(kernels, BlockSpec(AttentionSpec(2, 20, 2), FeedForwardSpec(6, "gelu"), NormSpec(), "post"))


@torch.no_grad()
def _is_right(kernels: GenerationKernels, spec: BlockSpec, rotary: Rotary | None = None) -> bool:
    """Two sequences, a part at a time, give what the block gives all at once."""
    lengths, width = (21, 4), 8
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stack = Stack(StackSpec((spec,), causal=True), width, rotary).float()
        given = torch.randn(sum(lengths), width, dtype=torch.float32)
    expected = stack(given, pack([[0] * length for length in lengths]))
    runner = KernelStack(stack, kernels, int8=False)
    pool = PagePool(runner.tokens, 3, torch.float32, torch.device("cpu"))
    own = RowTables(pool, np.array([[2, 0], [1, 0]], np.int32))
    rows = np.repeat(np.arange(2, dtype=np.int32), lengths)
    positions = np.concatenate([np.arange(length) for length in lengths])
    found = given.clone()
    for part in (positions < 3, positions == 3, positions > 3):
        entries = Entries(rows[part].copy(), positions[part].astype(np.int64), 21)
        mask, picks = torch.from_numpy(part), np.arange(part.sum())
        no_sources = torch.zeros(2, dtype=torch.int64)
        found[mask] = runner.run(given[mask].contiguous(), entries, own, None, no_sources, picks)
    return torch.allclose(found, expected, atol=1e-4)
