"""What the kernels can compute: modules that do what the library's own do, with matrices of the sizes that their
settings say, and batches that C can read. Everything else is left to the modules.
"""

from itertools import accumulate

import torch
from torch import Tensor, nn

from weft.model.attention import Attention, CrossAttention
from weft.model.block import Block
from weft.model.dropout import Dropout
from weft.model.embeddings import Embeddings
from weft.model.feedforward import FeedForward
from weft.model.norm import RMSNorm
from weft.model.packed import Packed
from weft.model.positions import RelativeBias
from weft.model.quantized import QuantizedEmbedding, QuantizedLinear
from weft.model.stack import Stack

_LINEARS = (nn.Linear, QuantizedLinear)
_TABLES = (nn.Embedding, QuantizedEmbedding)
_NORMS = (nn.LayerNorm, RMSNorm)
_PARTS = (Embeddings, Stack, nn.ModuleList, Block, Attention, CrossAttention, FeedForward, RelativeBias, Dropout)


def fits_kernel(embeddings: Embeddings, stack: Stack) -> bool:
    """Whether all modules are known, and their sizes match: C does not check where it reads."""
    modules = (*embeddings.modules(), *stack.modules())
    known = (*_PARTS, *_LINEARS, *_TABLES, *_NORMS)
    if not all(type(module) in known and "forward" not in vars(module) for module in modules):
        return False
    width = embeddings.spec.width
    tables = (embeddings.tokens, embeddings.positions, embeddings.segments)
    return (
        all(table is None or (type(table) in _TABLES and _shape(table)[1] == width) for table in tables)
        and all(_norm_fits(norm, width) for norm in (embeddings.norm, stack.norm))
        and all(type(block) is Block and _block_fits(block, width) for block in stack.blocks)
        and all(_view_fits(stack, layer) for layer in range(len(stack.blocks)))
    )


def linear_fits(linear: nn.Module, outputs: int | None = None, inputs: int | None = None) -> bool:
    """Whether it is a plain linear layer, of this size if that is given."""
    if type(linear) not in _LINEARS or "forward" in vars(linear):
        return False
    shape, bias = _shape(linear), linear.bias
    return (
        len(shape) == 2
        and outputs in (None, shape[0])
        and inputs in (None, shape[1])
        and (bias is None or bias.shape == shape[:1])
    )


def batch_fits(batch: Packed) -> bool:
    """Whether C can read it: vectors of int64 in a row, and starts that say the same as lengths."""
    rows, starts = len(batch.tokens), [0, *accumulate(batch.lengths)]
    vectors = [(batch.tokens, rows), (batch.positions, rows), (batch.starts, len(starts))]
    if batch.segments is not None:
        vectors.append((batch.segments, rows))
    for vector, size in vectors:
        if type(vector) is not Tensor or vector.dtype is not torch.int64 or not vector.is_cpu:
            return False
        if vector.shape != (size,) or not vector.is_contiguous():
            return False
    return starts[-1] == rows and min(batch.lengths, default=0) >= 0 and batch.starts.tolist() == starts


def memory_fits(memory: Tensor, source: Packed, width: int) -> bool:
    """The same for the source of a decoder with cross-attention."""
    if type(memory) is not Tensor or memory.dtype is not torch.float32 or not memory.is_cpu:
        return False
    return memory.shape == (len(source.tokens), width) and memory.is_contiguous() and batch_fits(source)


def _shape(module: nn.Module) -> torch.Size:
    values = module.values if isinstance(module, QuantizedLinear | QuantizedEmbedding) else module.weight
    assert isinstance(values, Tensor)
    return values.shape


def _norm_fits(norm: nn.Module | None, width: int) -> bool:
    if not isinstance(norm, _NORMS):
        return norm is None
    parts = [part for part in (norm.weight, getattr(norm, "bias", None)) if part is not None]
    return norm.normalized_shape == (width,) and all(part.shape == (width,) for part in parts)


def _block_fits(block: Block, width: int) -> bool:
    attention, feedforward, cross = block.attention, block.feedforward, block.cross
    if type(attention) is not Attention or type(feedforward) is not FeedForward:
        return False
    spec, inner = attention.spec, feedforward.spec.inner
    mixed, shared = spec.heads * spec.head_width, spec.key_value_heads * spec.head_width
    fits = (
        linear_fits(attention.qkv, mixed + 2 * shared, width)
        and linear_fits(attention.out, width, mixed)
        and linear_fits(feedforward.up, inner * (2 if feedforward.spec.gated else 1), width)
        and linear_fits(feedforward.down, width, inner)
        and all(_norm_fits(norm, spec.head_width) for norm in (attention.query_norm, attention.key_norm))
        and all(_norm_fits(norm, width) for norm in (block.attention_norm, block.cross_norm, block.feedforward_norm))
    )
    return fits and (cross is None or _cross_fits(cross, width))


def _cross_fits(cross: nn.Module, width: int) -> bool:
    if type(cross) is not CrossAttention:
        return False
    mixed = cross.spec.heads * cross.spec.head_width
    return (
        linear_fits(cross.query, mixed, width)
        and linear_fits(cross.key_value, 2 * mixed, width)
        and linear_fits(cross.out, width, mixed)
    )


def _view_fits(stack: Stack, layer: int) -> bool:
    """The stack's settings tell the size of the rotary tables, and its bias has a column per head."""
    spec, relative = stack.blocks[layer].attention.spec, stack.relative
    if layer >= len(stack.spec.blocks) or stack.spec.blocks[layer].attention.head_width != spec.head_width:
        return False
    return relative is None or (type(relative) is RelativeBias and _shape(relative.table)[1] == spec.heads)
