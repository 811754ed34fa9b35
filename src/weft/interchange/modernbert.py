"""Hugging Face's modernbert."""

from collections.abc import Iterator
from typing import Any

from weft.errors import FolderError
from weft.interchange.config_values import check_type
from weft.interchange.dialect import Dialect
from weft.interchange.weight_map import Link, link
from weft.model.families.family import LARGEST_SETTINGS
from weft.model.families.modernbert import ModernBert
from weft.model.network import Architecture

POOLING = {"cls": "first", "mean": "mean"}


def _links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    yield link("embed.tokens", prefix + "embeddings.tok_embeddings")
    yield link("embed.norm", prefix + "embeddings.norm")
    for layer in range(architecture.encoder.layers):
        block, theirs = f"encoder.blocks.{layer}.", f"{prefix}layers.{layer}."
        yield link(block + "attention_norm", theirs + "attn_norm")
        yield link(block + "attention.qkv", theirs + "attn.Wqkv")
        yield link(block + "attention.out", theirs + "attn.Wo")
        yield link(block + "feedforward_norm", theirs + "mlp_norm")
        yield link(block + "feedforward.up", theirs + "mlp.Wi")
        yield link(block + "feedforward.down", theirs + "mlp.Wo")
    yield link("encoder.norm", prefix + "final_norm")
    for kind in ("masked", "sequence", "token", "span"):
        yield link(f"heads.{kind}.dense", "head.dense")
        yield link(f"heads.{kind}.norm", "head.norm")
        yield link(f"heads.{kind}.out", "decoder" if kind == "masked" else "classifier")


def _read(config: dict[str, Any]) -> dict[str, Any]:
    """transformers 5 lists `layer_types`; before, there was `global_attn_every_n_layers`."""
    layers = check_type(config.get("num_hidden_layers"), int, "num_hidden_layers")
    if layers > LARGEST_SETTINGS["layers"]:
        raise FolderError(f"config.json: num_hidden_layers {layers:,} is more than {LARGEST_SETTINGS['layers']:,}.")
    types = config.get("layer_types")
    if types is None:
        every = check_type(config.get("global_attn_every_n_layers", 3), int, "global_attn_every_n_layers")
        types = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    if not isinstance(types, list) or len(types) != layers or set(types) - {"sliding_attention", "full_attention"}:
        raise FolderError(f"config.json: layer_types must name {layers} layers, sliding_attention or full_attention.")
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in POOLING:
        raise FolderError(f"config.json: classifier_pooling {pooling!r} is neither cls nor mean.")
    return {
        "local_layers": tuple(layer for layer, kind in enumerate(types) if kind == "sliding_attention"),
        "classifier_pooling": POOLING[pooling],
        "theta": _theta(config, "full_attention", "global_rope_theta", 160_000.0),
        "local_theta": _theta(config, "sliding_attention", "local_rope_theta", 10_000.0),
    }


def _theta(config: dict[str, Any], kind: str, old_key: str, default: float) -> float:
    rope = (config.get("rope_parameters") or {}).get(kind) or {}
    rope = {**rope, **(config.get("rope_scaling") or {})}
    if rope.get("rope_type", "default") != "default":
        raise FolderError(f"config.json: rotary positions of type {rope['rope_type']!r} are not supported here.")
    theta = rope.get("rope_theta", config.get(old_key))
    return float(default if theta is None else theta)


def _write(family: ModernBert) -> dict[str, Any]:
    stack = family.architecture("none").encoder
    local = () if stack.local is None else stack.local.layers
    return {
        "intermediate_size": stack.blocks[0].feedforward.inner,
        "layer_types": ["sliding_attention" if i in local else "full_attention" for i in range(family.layers)],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": family.theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": family.local_theta},
        },
        "classifier_pooling": "cls" if family.classifier_pooling == "first" else "mean",
    }


MODERNBERT = Dialect(
    model_type="modernbert",
    family=ModernBert,
    knobs={
        "vocab_size": "vocabulary",
        "num_hidden_layers": "layers",
        "hidden_size": "width",
        "num_attention_heads": "heads",
        "intermediate_size": "inner",
        "max_position_embeddings": "positions",
        "local_attention": "window",
        "hidden_activation": "activation",
        "norm_eps": "epsilon",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "mlp_bias": "feedforward_bias",
        "embedding_dropout": "embedding_dropout",
        "mlp_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "classifier_dropout",
        "classifier_activation": "classifier_activation",
        "classifier_bias": "classifier_bias",
        "decoder_bias": "output_bias",
        "tie_word_embeddings": "tied",
        "initializer_range": "init_std",
    },
    classes={
        "masked": "ModernBertForMaskedLM",
        "sequence": "ModernBertForSequenceClassification",
        "token": "ModernBertForTokenClassification",
        "span": "ModernBertForQuestionAnswering",
        "none": "ModernBertModel",
    },
    prefix=lambda head: "" if head == "none" else "model.",
    links=_links,
    defaults={"intermediate_size": 1152},
    read=_read,
    write=_write,
    # transformers' default ids would be outside a small vocabulary, so its embedding could not be built.
    tokens=lambda vocabulary: dict.fromkeys(
        ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0
    ),
)
