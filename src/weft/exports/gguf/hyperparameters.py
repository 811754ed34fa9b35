"""The settings of an architecture as llama.cpp names them. A key is written with the architecture's name before it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.exports.gguf.links import architecture_name
from weft.interchange.pooling import PoolingKind
from weft.model.block import BlockSpec
from weft.model.network import Architecture
from weft.model.positions import LinearScaling, Llama3Scaling, Relative, Rotary, longest, rotary_frequencies
from weft.model.stack import StackSpec

POOLING_TYPES: dict[PoolingKind, int] = {"mean": 1, "first": 2, "last": 3}
RANK_POOLING = 4  # the classifier's scores instead of a vector
T5_CONTEXT = 512  # relative positions have no limit; this is what T5's own files say


def hyperparameters(
    architecture: Architecture, *, pooling: PoolingKind, labels: Sequence[str], start: int | None
) -> dict[str, Any]:
    """`pooling`: of a model that gives vectors. `labels`: of a classifier. `start`: the decoder's first token."""
    stack = architecture.encoder or architecture.decoder
    assert stack is not None
    block, positions = stack.blocks[0], architecture.embedding.positions
    attention = block.attention
    found: dict[str, Any] = {
        "vocab_size": architecture.vocabulary,
        "context_length": longest(positions) or T5_CONTEXT,
        "embedding_length": architecture.width,
        "block_count": stack.layers,
        "feed_forward_length": block.feedforward.inner,
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.key_value_heads,
        "attention.key_length": attention.head_width,
        "attention.value_length": attention.head_width,
        **_epsilon(block),
    }
    if isinstance(positions, Rotary):
        found |= _rotary(positions, stack, attention.head_width)
    if isinstance(positions, Relative):
        found["attention.relative_buckets_count"] = positions.buckets
    if architecture_name(architecture) in ("bert", "modern-bert", "t5encoder"):
        found["attention.causal"] = False
    if architecture_name(architecture) == "t5":
        found |= {"decoder_start_token_id": start or 0, "decoder_block_count": architecture.decoder.layers}
    return found | _pooling(architecture, pooling, labels)


def _epsilon(block: BlockSpec) -> dict[str, float]:
    kind = "layer_norm_rms_epsilon" if block.norm.kind == "rms" else "layer_norm_epsilon"
    return {f"attention.{kind}": block.norm.epsilon}


def _rotary(positions: Rotary, stack: StackSpec, head_width: int) -> dict[str, Any]:
    found: dict[str, Any] = {"rope.freq_base": positions.theta, "rope.dimension_count": head_width}
    match positions.scaling:
        case LinearScaling(factor=factor):
            found |= {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
        case Llama3Scaling(original_size=size):  # the factors themselves are a tensor
            found["rope.scaling.original_context_length"] = size
    if stack.local is not None:
        found["rope.freq_base_swa"] = stack.local.theta
        found["attention.sliding_window"] = 2 * stack.local.window  # both sides together
        found["attention.sliding_window_pattern"] = local_period(stack)
    return found


def local_period(stack: StackSpec) -> int | None:
    """n if layers 0, n, 2n … see everything and the others are local. None: another pattern."""
    local = set() if stack.local is None else set(stack.local.layers)
    others = [layer for layer in range(stack.layers) if layer not in local]
    period = others[1] if len(others) > 1 else max(stack.layers, 2)
    return period if local == {layer for layer in range(stack.layers) if layer % period} else None


def _pooling(architecture: Architecture, pooling: PoolingKind, labels: Sequence[str]) -> dict[str, Any]:
    head = architecture.head("sequence")
    if head is not None:
        found: dict[str, Any] = {"pooling_type": RANK_POOLING, "classifier.output_labels": list(labels)}
        if head.pool == "first" and architecture_name(architecture) == "modern-bert":
            found["classifier.pooling_type"] = POOLING_TYPES["first"]
        return found
    if architecture.head("causal") or architecture.head("seq2seq"):
        return {}
    return {"pooling_type": POOLING_TYPES[pooling]}


def rotary_factors(architecture: Architecture) -> Tensor | None:
    """What llama.cpp divides each frequency by (D/2,), for Llama 3.1's scaling. It is stored as a tensor."""
    positions = architecture.embedding.positions
    if not isinstance(positions, Rotary) or not isinstance(positions.scaling, Llama3Scaling):
        return None
    width, cpu = architecture.decoder.blocks[0].attention.head_width, torch.device("cpu")
    plain = Rotary(positions.size, positions.theta)
    return rotary_frequencies(plain, width, cpu) / rotary_frequencies(positions, width, cpu)
