"""Hugging Face's gpt2. Its `Conv1D` stores matrices transposed, as (in, out)."""

from collections.abc import Iterator
from typing import Any

from weft.interchange.config_values import read_classifier_dropout, require
from weft.interchange.dialect import Dialect
from weft.interchange.weight_map import Link, link
from weft.model.families.gpt2 import Gpt2
from weft.model.network import Architecture


def _links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    yield link("embed.tokens", prefix + "wte")
    yield link("embed.positions", prefix + "wpe")
    for layer in range(architecture.decoder.layers):
        block, theirs = f"decoder.blocks.{layer}.", f"{prefix}h.{layer}."
        yield link(block + "attention_norm", theirs + "ln_1")
        yield link(block + "attention.qkv", theirs + "attn.c_attn", transposed=True)
        yield link(block + "attention.out", theirs + "attn.c_proj", transposed=True)
        yield link(block + "feedforward_norm", theirs + "ln_2")
        yield link(block + "feedforward.up", theirs + "mlp.c_fc", transposed=True)
        yield link(block + "feedforward.down", theirs + "mlp.c_proj", transposed=True)
    yield link("decoder.norm", prefix + "ln_f")
    yield link("heads.causal.out", "lm_head")
    yield link("heads.sequence.out", "score")
    yield link("heads.token.out", "classifier")
    yield link("heads.span.out", "qa_outputs")


def _check(config: dict[str, Any]) -> None:
    require(config, "add_cross_attention", (False,), "use an encoder–decoder family")
    require(config, "scale_attn_by_inverse_layer_idx", (False,), "all layers use the same attention scale")


def _read(config: dict[str, Any]) -> dict[str, Any]:
    return {"classifier_dropout": read_classifier_dropout(config)}


GPT2 = Dialect(
    model_type="gpt2",
    family=Gpt2,
    knobs={
        "vocab_size": "vocabulary",
        "n_layer": "layers",
        "n_embd": "width",
        "n_head": "heads",
        "n_inner": "inner",
        "n_positions": "positions",
        "activation_function": "activation",
        "layer_norm_epsilon": "epsilon",
        "resid_pdrop": "dropout",
        "embd_pdrop": "embedding_dropout",
        "attn_pdrop": "attention_dropout",
        "scale_attn_weights": "scaled",
        "tie_word_embeddings": "tied",
        "initializer_range": "init_std",
    },
    classes={
        "causal": "GPT2LMHeadModel",
        "sequence": "GPT2ForSequenceClassification",
        "token": "GPT2ForTokenClassification",
        "span": "GPT2ForQuestionAnswering",
        "none": "GPT2Model",
    },
    prefix=lambda head: "" if head == "none" else "transformer.",
    links=_links,
    check=_check,
    read=_read,
    write=lambda family: {"classifier_dropout": family.classifier_dropout},
    tokens=lambda vocabulary: {"bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1},
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",),
)
