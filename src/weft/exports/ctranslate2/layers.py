"""weft's modules as CTranslate2's specifications, which are filled with arrays.

    Embeddings      -> embeddings, scale_embeddings, position_encodings, layernorm_embedding
    Attention       -> self_attention: linear[0] = q, k, v; linear[1] = out
    CrossAttention  -> attention: linear[0] = q; linear[1] = k, v; linear[2] = out
    FeedForward     -> ffn: linear_0 = activated, linear_0_noact = gate's other half, linear_1 = down

Both keep matrices as (out, in) with q, k and v in one, so nothing is transposed. Every array is a copy: quantization
works in place and would change the model's own weights.
"""

from typing import Any

import numpy as np
import torch
from ctranslate2.specs import common_spec, transformer_spec
from ctranslate2.specs.attention_spec import RotaryScalingType
from torch import Tensor, nn

from weft.model.attention import Attention, CrossAttention
from weft.model.block import Block
from weft.model.embeddings import Embeddings
from weft.model.feedforward import Activation, FeedForward
from weft.model.fused_layers import Norm
from weft.model.positions import Learned, LinearScaling, Llama3Scaling, Relative, Rotary, Sinusoidal, sinusoid_table
from weft.model.stack import Stack

_ACTIVATIONS: dict[Activation, common_spec.Activation] = {
    "gelu": common_spec.Activation.GELU,
    "gelu-tanh": common_spec.Activation.GELUTanh,
    "relu": common_spec.Activation.RELU,
    "silu": common_spec.Activation.SWISH,
    "tanh": common_spec.Activation.Tanh,
}


def activation_code(name: Activation) -> common_spec.Activation:
    return _ACTIVATIONS[name]


def as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()


def encoder_spec(stack: Stack, embed: Embeddings) -> transformer_spec.TransformerEncoderSpec:
    segments = embed.segments is not None
    spec = transformer_spec.TransformerEncoderSpec(
        num_source_embeddings=2 if segments else 1,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        **_stack_options(stack, embed),
    )
    spec.embeddings[0].weight = as_array(embed.tokens.weight)
    if segments:
        spec.embeddings[1].weight = as_array(embed.segments.weight)
    _fill_stack(spec, stack, embed)
    return spec


def decoder_spec(stack: Stack, embed: Embeddings) -> transformer_spec.TransformerDecoderSpec:
    spec = transformer_spec.TransformerDecoderSpec(
        with_encoder_attention=stack.spec.cross, **_stack_options(stack, embed)
    )
    spec.embeddings.weight = as_array(embed.tokens.weight)
    _fill_stack(spec, stack, embed)
    return spec


def fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = as_array(weight)
    if bias is not None:
        spec.bias = as_array(bias)


def _stack_options(stack: Stack, embed: Embeddings) -> dict[str, Any]:
    block = stack.spec.blocks[0]
    attention, feedforward = block.attention, block.feedforward
    grouped = attention.key_value_heads != attention.heads
    return {
        "num_layers": stack.spec.layers,
        "num_heads": attention.heads,
        "num_heads_kv": attention.key_value_heads if grouped else None,
        "head_dim": attention.head_width,
        "qk_norm": attention.head_norm is not None,
        "pre_norm": block.order == "pre",
        "no_final_norm": not stack.spec.final_norm,
        "activation": activation_code(feedforward.activation),
        "ffn_glu": feedforward.gated,
        "rms_norm": block.norm.kind == "rms",
        "layernorm_embedding": embed.norm is not None,
        "relative_attention_bias": isinstance(stack.positions, Relative),
        **(_rotary_options(stack.positions) if isinstance(stack.positions, Rotary) else {}),
    }


def _rotary_options(rotary: Rotary) -> dict[str, Any]:
    """`rotary_interleave`: off, as pairs are (i, i + D/2). A dimension of 0 means all."""
    options: dict[str, Any] = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": rotary.theta}
    match rotary.scaling:
        case LinearScaling(factor=factor):
            options |= {"rotary_scaling_type": RotaryScalingType.Linear, "rotary_scaling_factor": factor}
        case Llama3Scaling():
            options |= {"rotary_scaling_type": RotaryScalingType.Llama3}
    return options


def _fill_stack(spec: Any, stack: Stack, embed: Embeddings) -> None:
    spec.scale_embeddings = embed.spec.scaled
    match embed.spec.positions:
        case Learned(offset=offset):
            spec.position_encodings.encodings = as_array(embed.positions.weight[offset:])
        case Sinusoidal(size=size):
            table = sinusoid_table(torch.arange(size), embed.spec.width, torch.float32)
            spec.position_encodings.encodings = as_array(table)
    if embed.norm is not None:
        _fill_norm(spec.layernorm_embedding, embed.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        assert isinstance(block, Block)
        _fill_block(layer, block, stack)
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_block(layer: Any, block: Block, stack: Stack) -> None:
    _fill_attention(layer.self_attention, block.attention, block.attention_norm, stack)
    if block.cross is not None and block.cross_norm is not None:
        _fill_cross(layer.attention, block.cross, block.cross_norm)
    _fill_feedforward(layer.ffn, block.feedforward, block.feedforward_norm)


def _fill_attention(spec: Any, attention: Attention, norm: Norm | None, stack: Stack) -> None:
    assert norm is not None
    _fill_norm(spec.layer_norm, norm)
    fill_linear(spec.linear[0], attention.qkv.weight, attention.qkv.bias)
    fill_linear(spec.linear[1], attention.out.weight, attention.out.bias)
    if attention.query_norm is not None and attention.key_norm is not None:
        _fill_norm(spec.q_norm, attention.query_norm)
        _fill_norm(spec.k_norm, attention.key_norm)
    if not attention.spec.scaled:
        spec.queries_scale = 1.0
    if stack.relative is not None:  # all layers have the table that they share
        spec.relative_attention_bias = as_array(stack.relative.table.weight)
        spec.relative_attention_max_distance = np.int32(stack.relative.spec.distance)
    if isinstance(stack.positions, Rotary) and isinstance(stack.positions.scaling, Llama3Scaling):
        _fill_llama3(spec, stack.positions.scaling)


def _fill_llama3(spec: Any, scaling: Llama3Scaling) -> None:
    spec.rotary_low_freq_factor = np.float32(scaling.low)
    spec.rotary_high_freq_factor = np.float32(scaling.high)
    # The runtime reads these two, but the specification of this kind of scaling does not declare them.
    object.__setattr__(spec, "rotary_scaling_factor", np.float32(scaling.factor))
    object.__setattr__(spec, "original_max_position_embeddings", np.int32(scaling.original_size))


def _fill_cross(spec: Any, cross: CrossAttention, norm: Norm) -> None:
    _fill_norm(spec.layer_norm, norm)
    fill_linear(spec.linear[0], cross.query.weight, cross.query.bias)
    fill_linear(spec.linear[1], cross.key_value.weight, cross.key_value.bias)
    fill_linear(spec.linear[2], cross.out.weight, cross.out.bias)
    if not cross.spec.scaled:
        spec.queries_scale = 1.0


def _fill_feedforward(spec: Any, feedforward: FeedForward, norm: Norm) -> None:
    _fill_norm(spec.layer_norm, norm)
    up, bias = feedforward.up.weight, feedforward.up.bias
    if feedforward.spec.gated:
        inner = feedforward.spec.inner
        fill_linear(spec.linear_0, up[:inner], None if bias is None else bias[:inner])
        fill_linear(spec.linear_0_noact, up[inner:], None if bias is None else bias[inner:])
    else:
        fill_linear(spec.linear_0, up, bias)
    fill_linear(spec.linear_1, feedforward.down.weight, feedforward.down.bias)


def _fill_norm(spec: Any, norm: Norm) -> None:
    spec.gamma = as_array(norm.weight)
    if isinstance(norm, nn.LayerNorm):  # the runtime has no LayerNorm without a bias
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else as_array(norm.bias)
