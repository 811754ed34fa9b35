"""A stack described to `forward.c`, which embeds a flat batch and runs all of its layers in one call."""

import ctypes
import math
import os
import threading
import time
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int64, c_void_p
from itertools import accumulate
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from weft.compiled import threads
from weft.inference.fitting import batch_fits, memory_fits
from weft.inference.forward_kernels import ForwardKernels
from weft.inference.layer import TABLE_ROWS, LayerKernel, rotary_angles
from weft.inference.matrices import KernelNorm, NormStruct, WeightPrecision, data_address
from weft.inference.thread_choice import ThreadChoice
from weft.model.block import Block
from weft.model.embeddings import Embeddings
from weft.model.packed import Packed
from weft.model.positions import Learned, Rotary, Sinusoidal, relative_bucket, sinusoid_table
from weft.model.quantized import QuantizedEmbedding
from weft.model.stack import Stack

_FEW_ROWS = 48  # per thread: below, threads share every product
_CHUNK_ROWS = 128  # of whole sequences, which one thread runs through all layers
_MARGIN = 16  # columns of the relative bias on both sides: the kernel reads whole registers
_WRONG_POSITION = 2  # as weft_forward returns it


class _SeenLayer(ctypes.Structure):
    _fields_ = (*((name, c_void_p) for name in ("layer", "cos", "sin")), ("window", c_int64))


class _Embedding(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("tokens", "token_scales", "positions", "segments")),
        *((name, c_int64) for name in ("vocabulary", "position_count", "offset", "segment_count")),
        ("scale", c_float),
        ("norm", NormStruct),
    )


class _Stack(ctypes.Structure):
    _fields_ = (
        ("layers", c_void_p),
        ("count", c_int64),
        ("width", c_int64),
        ("norm", NormStruct),
        ("causal", c_int),
        ("is_bfloat", c_int),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("starts", "source_starts")),
        ("sequences", c_int64),
        *((name, c_void_p) for name in ("tokens", "positions", "segments", "memory", "bias")),
        *((name, c_int64) for name in ("bias_stride", "bias_zero", "angles")),
        *((name, c_void_p) for name in ("x", "room")),
        ("room_bytes", c_int64),
        ("threads", c_int),
    )


class EmbeddingKernel:
    """The C struct, and the tensors whose addresses it holds."""

    def __init__(self, embeddings: Embeddings) -> None:
        spec, tokens = embeddings.spec, embeddings.tokens
        self.spec, self.norm = spec, KernelNorm(embeddings.norm)
        self.token_scales: Tensor | None = None
        if isinstance(tokens, QuantizedEmbedding):
            weight = tokens.quantized
            self.tokens, self.token_scales = weight.values.contiguous(), weight.scales.contiguous()
        else:
            self.tokens = tokens.weight.detach().contiguous()
        learned, segments = embeddings.positions, embeddings.segments
        self.positions = None if learned is None else learned.weight.detach().contiguous()
        self.segments = None if segments is None else segments.weight.detach().contiguous()
        offset = spec.positions.offset if isinstance(spec.positions, Learned) else 0
        self.struct = _Embedding(
            *(data_address(part) for part in (self.tokens, self.token_scales, self.positions, self.segments)),
            len(self.tokens),
            0 if self.positions is None else len(self.positions),
            offset,
            0 if self.segments is None else len(self.segments),
            math.sqrt(spec.width) if spec.scaled else 1.0,
            self.norm.struct,
        )
        self.address = ctypes.addressof(self.struct)

    def make_table(self, longest: int) -> None:
        """Sinusoids of all positions below `longest`."""
        if isinstance(self.spec.positions, Sinusoidal):
            index = torch.arange(longest, device="cpu")
            self.positions = sinusoid_table(index, self.spec.width, torch.float32).contiguous()
            self.struct.positions, self.struct.position_count = self.positions.data_ptr(), len(self.positions)


_kernels: WeakSet["StackKernel"] = WeakSet()


def _renew_locks() -> None:
    """In a forked process: a lock may be held by a thread that is not there any more."""
    for kernel in list(_kernels):
        kernel.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class StackKernel:
    """Token ids in, hidden states out."""

    def __init__(
        self,
        embeddings: Embeddings,
        stack: Stack,
        kernels: ForwardKernels,
        precision: WeightPrecision,
        *,
        half_attention: bool = False,
    ) -> None:
        """Of a stack that `fits_kernel`. `half_attention`: attention in bf16, where the processor has it."""
        self.spec, self.positions, self.relative, self.kernels = stack.spec, stack.positions, stack.relative, kernels
        self.embedding, self.norm = EmbeddingKernel(embeddings), KernelNorm(stack.norm)
        self.width, self.reads_source = embeddings.spec.width, any(block.cross is not None for block in stack.blocks)
        self.layers = [LayerKernel(block, precision) for block in stack.blocks if isinstance(block, Block)]
        self.angles: dict[tuple[int, float], tuple[Tensor, Tensor]] = {}
        self.lock, self.threads = threading.Lock(), ThreadChoice()
        self.longest = 0
        self.bias: Tensor | None = None
        seen = (_SeenLayer * len(self.layers))()
        is_bfloat = half_attention and kernels.has_bfloat()
        self.seen, self.struct = seen, _Stack(
            ctypes.addressof(seen), len(seen), self.width, self.norm.struct, stack.spec.causal, is_bfloat
        )  # fmt: skip
        self.address = ctypes.addressof(self.struct)
        self.room = torch.empty(0, dtype=torch.uint8, device="cpu")
        _kernels.add(self)

    def takes(self, batch: Packed, memory: Tensor | None, source: Packed | None) -> bool:
        """Whether it can read them."""
        if memory is None or source is None:
            return memory is None and source is None and not self.reads_source and batch_fits(batch)
        is_paired = self.reads_source and len(batch.lengths) == len(source.lengths)
        return is_paired and batch_fits(batch) and memory_fits(memory, source, self.width)

    @torch.no_grad()
    def run(self, batch: Packed, memory: Tensor | None, source: Packed | None) -> Tensor | None:
        """Hidden states (T, W) of what it `takes`. None if rotary or sinusoidal positions go beyond the tables, which
        are made for the longest sequence. Raises IndexError if an id or a learned position is not in its table.
        """
        out = torch.empty(len(batch.tokens), self.width, dtype=torch.float32, device="cpu")
        if not len(out):
            return out
        longest, sources, most = batch.longest, None, threads()
        if source is not None:
            longest, sources = max(longest, source.longest), source.lengths
        cuts, rows, source_rows = _cut(batch.lengths, sources, most)
        is_shared = len(cuts) == 2
        with self.lock:
            self._make_tables(longest)
            wanted = self.threads.pick(rows, most) if is_shared else most
            size = self.kernels.room_bytes(self.address, rows, source_rows, longest, wanted if is_shared else 1)
            needed = size if is_shared else size * wanted
            if len(self.room) < needed:
                self.room = torch.empty(needed, dtype=torch.uint8, device="cpu")
            given = _Batch(
                batch.starts.data_ptr(), None if source is None else source.starts.data_ptr(), len(batch.lengths),
                batch.tokens.data_ptr(), batch.positions.data_ptr(), data_address(batch.segments),
                data_address(memory), data_address(self.bias), *self._bias_place(),
                self.longest if self.angles else 0, out.data_ptr(), self.room.data_ptr(), size, wanted,
            )  # fmt: skip
            begin = time.perf_counter()
            wrong = self.kernels.forward(
                self.address, self.embedding.address, ctypes.addressof(given), cuts.ctypes.data, len(cuts) - 1
            )
            if is_shared:
                self.threads.note(rows, wanted, time.perf_counter() - begin)
        if wrong == _WRONG_POSITION and not isinstance(self.embedding.spec.positions, Learned):
            return None
        if wrong:
            raise IndexError("a token id, a position or a segment is not in the model's table")
        return out

    def _bias_place(self) -> tuple[int, int]:
        return (0, 0) if self.bias is None else (self.bias.shape[1], self.longest - 1 + _MARGIN)

    def _make_tables(self, longest: int) -> None:
        """Tables for sequences of this length, made again when they are too short."""
        if longest <= self.longest:
            return
        self.longest, longest = 0, -(-longest // TABLE_ROWS) * TABLE_ROWS  # 0: if this fails, they are made again
        self.embedding.make_table(longest)
        for number, layer in enumerate(self.layers):
            self.seen[number] = _SeenLayer(layer.address, *self._view(number, longest))
        if self.relative is not None:
            distances = torch.arange(1 - longest, longest, device="cpu")
            buckets = relative_bucket(distances, self.relative.spec, both_ways=self.relative.both_ways)
            bias = self.relative.table(buckets).T.float()
            self.bias = torch.nn.functional.pad(bias, (_MARGIN, _MARGIN)).contiguous()
        self.longest = longest

    def _view(self, layer: int, longest: int) -> tuple[int | None, int | None, int]:
        """The addresses of cos and sin, and the window."""
        local, positions = self.spec.local, self.positions
        is_local = local is not None and layer in local.layers
        window = local.window if local is not None and is_local else -1
        if not isinstance(positions, Rotary):
            return None, None, window
        if local is not None and is_local:
            positions = Rotary(positions.size, local.theta)
        key = self.spec.blocks[layer].attention.head_width, positions.theta
        known = self.angles.get(key)
        if known is None or len(known[0]) < longest:
            known = self.angles[key] = rotary_angles(positions, longest, key[0])
        return known[0].data_ptr(), known[1].data_ptr(), window


def _cut(lengths: Sequence[int], sources: Sequence[int] | None, wanted: int) -> tuple[np.ndarray, int, int]:
    """The first sequence of each chunk and the number of sequences; the most rows and source rows of a chunk."""
    total = sum(lengths)
    if total <= _FEW_ROWS * wanted:
        return np.array([0, len(lengths)]), total, sum(sources or ())
    chunks = -(-total // _CHUNK_ROWS)
    chunks = -(-chunks // wanted) * wanted  # as many for each thread
    ends = list(accumulate(lengths))
    cuts, rows, source_rows, begin = [0], 0, 0, 0
    for end, at in enumerate(ends, 1):
        if at >= total * len(cuts) / chunks or end == len(ends):
            rows = max(rows, at - begin)
            if sources is not None:
                source_rows = max(source_rows, sum(sources[cuts[-1] : end]))
            cuts.append(end)
            begin = at
    return np.array(cuts), rows, source_rows
