"""Hugging Face's marian: the original Transformer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from weft.interchange.config_values import require
from weft.interchange.dialect import Dialect, joined
from weft.interchange.weight_map import Link, link
from weft.model.families.transformer import Transformer
from weft.model.network import Architecture
from weft.model.positions import sinusoid_table


def _links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    both = joined(prefix, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    if architecture.shared_embedding:
        yield link("embed.tokens.weight", prefix + "shared.weight", also=both)
    else:
        yield link("embed.tokens.weight", both[0])
        yield link("decoder_embed.tokens.weight", both[1])
    for side, stack in (("encoder", architecture.encoder), ("decoder", architecture.decoder)):
        for layer in range(stack.layers):
            block, theirs = f"{side}.blocks.{layer}.", f"{prefix}{side}.layers.{layer}."
            yield Link(block + "attention.qkv", joined(theirs + "self_attn.", "q_proj", "k_proj", "v_proj"))
            yield link(block + "attention.out", theirs + "self_attn.out_proj")
            yield link(block + "attention_norm", theirs + "self_attn_layer_norm")
            yield link(block + "cross.query", theirs + "encoder_attn.q_proj")
            yield Link(block + "cross.key_value", joined(theirs + "encoder_attn.", "k_proj", "v_proj"))
            yield link(block + "cross.out", theirs + "encoder_attn.out_proj")
            yield link(block + "cross_norm", theirs + "encoder_attn_layer_norm")
            yield link(block + "feedforward.up", theirs + "fc1")
            yield link(block + "feedforward.down", theirs + "fc2")
            yield link(block + "feedforward_norm", theirs + "final_layer_norm")
    yield link("heads.seq2seq.out.weight", "lm_head.weight")
    yield link("heads.seq2seq.out.bias", "final_logits_bias", shape=(1, architecture.vocabulary))


def _check(config: dict[str, Any]) -> None:
    vocabulary = config.get("vocab_size")
    require(config, "decoder_vocab_size", (None, vocabulary), "source and target share one vocabulary")
    require(config, "is_decoder", (False,), "Marian is an encoder–decoder here")
    for key in ("encoder_layerdrop", "decoder_layerdrop"):
        require(config, key, (0, 0.0), "layer dropout is not supported")


def _read(config: dict[str, Any]) -> dict[str, Any]:
    # If transformers unties the output, it unties all three embeddings.
    shared = config.get("share_encoder_decoder_embeddings", True) and config.get("tie_word_embeddings", True)
    return {"shared_embedding": bool(shared)}


def _tables(architecture: Architecture, head: str) -> dict[str, Tensor]:
    """MarianModel expects its sinusoidal table in the file; MarianMTModel computes it."""
    if head != "none":
        return {}
    size, width = architecture.embedding.positions.size, architecture.width
    table = sinusoid_table(torch.arange(size), width, torch.float32)
    return {f"{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}


MARIAN = Dialect(
    model_type="marian",
    family=Transformer,
    knobs={
        "vocab_size": "vocabulary",
        "encoder_layers": "layers",
        "decoder_layers": "decoder_layers",
        "d_model": "width",
        "encoder_attention_heads": "heads",
        "decoder_attention_heads": "decoder_heads",
        "encoder_ffn_dim": "inner",
        "decoder_ffn_dim": "decoder_inner",
        "max_position_embeddings": "positions",
        "activation_function": "activation",
        "scale_embedding": "scaled_embedding",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_dropout": "inner_dropout",
        "tie_word_embeddings": "tied",
        "init_std": "init_std",
    },
    classes={"seq2seq": "MarianMTModel", "none": "MarianModel"},
    prefix=lambda head: "" if head == "none" else "model.",
    links=_links,
    defaults={
        "activation_function": "gelu",
        "scale_embedding": False,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "decoder_layers": 12,
        "decoder_attention_heads": 16,
    },
    check=_check,
    read=_read,
    write=lambda family: {
        "decoder_layers": family.decoder_layers or family.layers,
        "decoder_attention_heads": family.decoder_heads or family.heads,
        "encoder_ffn_dim": family.inner or 4 * family.width,
        "decoder_ffn_dim": family.decoder_inner or family.inner or 4 * family.width,
        "share_encoder_decoder_embeddings": family.shared_embedding,
        "decoder_vocab_size": family.vocabulary,
    },
    tokens=lambda vocabulary: {
        "pad_token_id": vocabulary - 1,
        "decoder_start_token_id": vocabulary - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    },
    ignored=(r"(model\.)?(encoder|decoder)\.embed_positions\.weight", r"(model\.)?shared\.weight"),
    tables=_tables,
)
