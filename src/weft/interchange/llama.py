"""Hugging Face's llama and qwen3."""

from collections.abc import Iterator
from typing import Any

from weft.errors import FolderError
from weft.interchange.config_values import read_classifier_dropout, require
from weft.interchange.dialect import Dialect, joined
from weft.interchange.weight_map import Link, link
from weft.model.families.llama import Llama, Qwen3
from weft.model.network import Architecture
from weft.model.positions import LinearScaling, Llama3Scaling


def _links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    yield link("embed.tokens", prefix + "embed_tokens")
    for layer, spec in enumerate(architecture.decoder.blocks):
        attention = spec.attention
        query, key = (count * attention.head_width for count in (attention.heads, attention.key_value_heads))
        block, theirs = f"decoder.blocks.{layer}.", f"{prefix}layers.{layer}."
        names = joined(theirs + "self_attn.", "q_proj", "k_proj", "v_proj")
        yield link(block + "attention_norm", theirs + "input_layernorm")
        yield Link(block + "attention.qkv", names, rows=(query, key, key))
        yield link(block + "attention.query_norm", theirs + "self_attn.q_norm")
        yield link(block + "attention.key_norm", theirs + "self_attn.k_norm")
        yield link(block + "attention.out", theirs + "self_attn.o_proj")
        yield link(block + "feedforward_norm", theirs + "post_attention_layernorm")
        yield Link(block + "feedforward.up", joined(theirs + "mlp.", "gate_proj", "up_proj"))
        yield link(block + "feedforward.down", theirs + "mlp.down_proj")
    yield link("decoder.norm", prefix + "norm")
    yield link("heads.causal.out", "lm_head")
    yield link("heads.sequence.out", "score")
    yield link("heads.token.out", "score")
    yield link("heads.span.out", "qa_outputs")


def _read_rotary(config: dict[str, Any]) -> dict[str, Any]:
    """transformers 5 writes `rope_parameters`; earlier versions `rope_theta` and `rope_scaling`."""
    rope = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    try:
        return {
            "theta": float(theta),
            "scaling": _read_scaling(kind, rope),
            "classifier_dropout": read_classifier_dropout(config),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"config.json: rope_parameters are incomplete: {error}.") from error


def _read_scaling(kind: str, rope: dict[str, Any]) -> LinearScaling | Llama3Scaling | None:
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(float(rope["factor"]))
        case "llama3":
            return Llama3Scaling(
                float(rope["factor"]),
                float(rope["low_freq_factor"]),
                float(rope["high_freq_factor"]),
                int(rope["original_max_position_embeddings"]),
            )
    raise FolderError(f"config.json: rotary type {kind!r} is not supported; default, linear and llama3 are.")


def _write_rotary(family: Llama) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": family.theta}
    match family.scaling:
        case LinearScaling(factor=factor):
            rope |= {"rope_type": "linear", "factor": factor}
        case Llama3Scaling(factor=factor, low=low, high=high, original_size=size):
            rope |= {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
            rope["original_max_position_embeddings"] = size
    block = family.architecture("none").decoder.blocks[0]
    return {
        "classifier_dropout": family.classifier_dropout,
        "rope_parameters": rope,
        "head_dim": block.attention.head_width,
        "num_key_value_heads": block.attention.key_value_heads,
        "intermediate_size": block.feedforward.inner,
    }


def _check_qwen3(config: dict[str, Any]) -> None:
    require(config, "use_sliding_window", (False, None), "every layer attends to the whole context")


_KNOBS = {
    "vocab_size": "vocabulary",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "num_key_value_heads": "key_value_heads",
    "head_dim": "head_width",
    "intermediate_size": "inner",
    "max_position_embeddings": "positions",
    "hidden_act": "activation",
    "rms_norm_eps": "epsilon",
    "attention_dropout": "attention_dropout",
    "attention_bias": "attention_bias",
    "tie_word_embeddings": "tied",
    "initializer_range": "init_std",
}


def _classes(name: str) -> dict[str, str]:
    return {
        "causal": f"{name}ForCausalLM",
        "sequence": f"{name}ForSequenceClassification",
        "token": f"{name}ForTokenClassification",
        "span": f"{name}ForQuestionAnswering",
        "none": f"{name}Model",
    }


def _prefix(head: str) -> str:
    return {"none": "", "span": "transformer."}.get(head, "model.")


def _tokens(vocabulary: int) -> dict[str, int | None]:
    return {"bos_token_id": min(1, vocabulary - 1), "eos_token_id": min(2, vocabulary - 1), "pad_token_id": None}


LLAMA = Dialect(
    model_type="llama",
    family=Llama,
    knobs={**_KNOBS, "mlp_bias": "feedforward_bias"},
    classes=_classes("Llama"),
    prefix=_prefix,
    links=_links,
    defaults={"intermediate_size": 11_008},
    read=_read_rotary,
    write=_write_rotary,
    tokens=_tokens,
    ignored=(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
)

QWEN3 = Dialect(
    model_type="qwen3",
    family=Qwen3,
    knobs=_KNOBS,
    classes=_classes("Qwen3"),
    prefix=_prefix,
    links=_links,
    defaults={
        "intermediate_size": 22_016,
        "head_dim": 128,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
    },
    check=_check_qwen3,
    read=_read_rotary,
    write=_write_rotary,
    tokens=_tokens,
)
