"""Hugging Face's t5.

transformers 5 always writes `tie_word_embeddings: true`, and v1.1's missing output scale in `scale_decoder_outputs`. In
earlier versions an untied config meant both an untied output matrix and no scale. In either case the matrix is untied
if the file holds different values for it (see `folder`).
"""

from collections.abc import Iterator
from typing import Any

from weft.errors import FolderError
from weft.interchange.config_values import activation_from_hf, activation_to_hf, require
from weft.interchange.dialect import Dialect, joined
from weft.interchange.weight_map import Link, link
from weft.model.families.t5 import T5
from weft.model.network import Architecture
from weft.model.stack import StackSpec


def _links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    yield link("embed.tokens.weight", prefix + "shared.weight", also=joined(prefix, *names))
    for side, stack in (("encoder", architecture.encoder), ("decoder", architecture.decoder)):
        if stack is not None:
            yield from _stack_links(side, stack, prefix)
    yield link("heads.seq2seq.out", "lm_head")
    yield link("heads.sequence.dense", "classification_head.dense")
    yield link("heads.sequence.out", "classification_head.out_proj")
    yield link("heads.token.out", "classifier")
    yield link("heads.span.out", "qa_outputs")


def _stack_links(side: str, stack: StackSpec, prefix: str) -> Iterator[Link]:
    table = f"{prefix}{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    yield link(f"{side}.relative.table", table)
    for layer, spec in enumerate(stack.blocks):
        block, their = f"{side}.blocks.{layer}.", f"{prefix}{side}.block.{layer}.layer."
        last = 2 if side == "decoder" else 1
        yield Link(block + "attention.qkv", joined(their + "0.SelfAttention.", "q", "k", "v"))
        yield link(block + "attention.out", their + "0.SelfAttention.o")
        yield link(block + "attention_norm", their + "0.layer_norm")
        yield link(block + "cross.query", their + "1.EncDecAttention.q")
        yield Link(block + "cross.key_value", joined(their + "1.EncDecAttention.", "k", "v"))
        yield link(block + "cross.out", their + "1.EncDecAttention.o")
        yield link(block + "cross_norm", their + "1.layer_norm")
        up = joined(f"{their}{last}.DenseReluDense.", *(("wi_0", "wi_1") if spec.feedforward.gated else ("wi",)))
        yield Link(block + "feedforward.up", up)
        yield link(block + "feedforward.down", f"{their}{last}.DenseReluDense.wo")
        yield link(block + "feedforward_norm", f"{their}{last}.layer_norm")
    yield link(f"{side}.norm", f"{prefix}{side}.final_layer_norm")


def _check(config: dict[str, Any]) -> None:
    require(config, "is_decoder", (False,), "T5 is an encoder–decoder")


def _read(config: dict[str, Any]) -> dict[str, Any]:
    proj = config.get("feed_forward_proj", "relu")
    if not isinstance(proj, str):
        raise FolderError(f"config.json: feed_forward_proj is {proj!r}, which is not a string.")
    gated, name = proj.startswith("gated-"), proj.removeprefix("gated-")
    untied = config.get("tie_word_embeddings") is False
    return {
        "gated": gated,
        # In transformers, gated-gelu means the tanh approximation.
        "activation": "gelu-tanh" if proj == "gated-gelu" else activation_from_hf(name, "feed_forward_proj"),
        "tied": not untied,
        "output_scaled": bool(config.get("scale_decoder_outputs", not untied)),
    }


def _write(family: T5) -> dict[str, Any]:
    name = "gelu" if family.gated and family.activation == "gelu-tanh" else activation_to_hf(family.activation)
    return {
        "feed_forward_proj": f"gated-{name}" if family.gated else name,
        "num_decoder_layers": family.decoder_layers or family.layers,
        "d_ff": family.inner or 4 * family.width,
        "scale_decoder_outputs": family.output_scaled,
        "tie_word_embeddings": family.tied,
    }


T5_DIALECT = Dialect(
    model_type="t5",
    family=T5,
    knobs={
        "vocab_size": "vocabulary",
        "num_layers": "layers",
        "num_decoder_layers": "decoder_layers",
        "d_model": "width",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "inner",
        "relative_attention_num_buckets": "buckets",
        "relative_attention_max_distance": "distance",
        "layer_norm_epsilon": "epsilon",
        "dropout_rate": "dropout",
        "classifier_dropout": "classifier_dropout",
    },
    classes={
        "seq2seq": "T5ForConditionalGeneration",
        "sequence": "T5ForSequenceClassification",
        "token": "T5ForTokenClassification",
        "span": "T5ForQuestionAnswering",
        "encoder": "T5EncoderModel",
        "none": "T5Model",
    },
    prefix=lambda head: "transformer." if head in ("sequence", "token") else "",
    links=_links,
    defaults={"d_ff": 2048},
    check=_check,
    read=_read,
    write=_write,
    tokens=lambda vocabulary: {
        "pad_token_id": 0,
        "eos_token_id": min(1, vocabulary - 1),
        "decoder_start_token_id": 0,
    },
    # Old checkpoints hold an unused table for cross-attention.
    ignored=(r"(transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
)
