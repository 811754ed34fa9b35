"""Hugging Face's bert, roberta and distilbert."""

from collections.abc import Callable, Iterator
from typing import Any

from weft.interchange.config_values import require
from weft.interchange.dialect import Dialect, joined
from weft.interchange.weight_map import Link, link
from weft.model.families.bert import Bert, DistilBert, Roberta
from weft.model.network import Architecture


def _bert_links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    embeddings = prefix + "embeddings."
    yield link("embed.tokens", embeddings + "word_embeddings")
    yield link("embed.positions", embeddings + "position_embeddings")
    yield link("embed.segments", embeddings + "token_type_embeddings")
    yield link("embed.norm", embeddings + "LayerNorm")
    for layer in range(architecture.encoder.layers):
        block, theirs = f"encoder.blocks.{layer}.", f"{prefix}encoder.layer.{layer}."
        yield Link(block + "attention.qkv", joined(theirs + "attention.self.", "query", "key", "value"))
        yield link(block + "attention.out", theirs + "attention.output.dense")
        yield link(block + "attention_norm", theirs + "attention.output.LayerNorm")
        yield link(block + "feedforward.up", theirs + "intermediate.dense")
        yield link(block + "feedforward.down", theirs + "output.dense")
        yield link(block + "feedforward_norm", theirs + "output.LayerNorm")
    for kind in ("pooler", "sequence", "next-sentence"):
        yield link(f"heads.{kind}.dense", prefix + "pooler.dense")
    yield link("heads.next-sentence.out", "cls.seq_relationship")
    yield link("heads.masked.dense", "cls.predictions.transform.dense")
    yield link("heads.masked.norm", "cls.predictions.transform.LayerNorm")
    yield from _output(architecture, "cls.predictions")
    yield link("heads.token.out", "classifier")
    yield link("heads.sequence.out", "classifier")
    yield link("heads.span.out", "qa_outputs")


def _output(architecture: Architecture, module: str) -> Iterator[Link]:
    """The vocabulary layer. Its bias has two names, which are one parameter if the weights are tied. If untied,
    transformers uses only the layer's own bias but expects both in the file.
    """
    yield link("heads.masked.out.weight", f"{module}.decoder.weight")
    masked = architecture.head("masked")
    if masked is None or masked.tied:
        yield link("heads.masked.out.bias", f"{module}.bias", also=(f"{module}.decoder.bias",))
    else:
        yield link(
            "heads.masked.out.bias", f"{module}.decoder.bias", copies=(f"{module}.bias",), or_else=f"{module}.bias"
        )


def _roberta_links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    changed = ("heads.masked.", "heads.sequence.")
    yield from (item for item in _bert_links(architecture, prefix) if not item.ours.startswith(changed))
    yield link("heads.masked.dense", "lm_head.dense")
    yield link("heads.masked.norm", "lm_head.layer_norm")
    yield from _output(architecture, "lm_head")
    yield link("heads.sequence.dense", "classifier.dense")
    yield link("heads.sequence.out", "classifier.out_proj")


def _distilbert_links(architecture: Architecture, prefix: str) -> Iterator[Link]:
    embeddings = prefix + "embeddings."
    yield link("embed.tokens", embeddings + "word_embeddings")
    yield link("embed.positions", embeddings + "position_embeddings")
    yield link("embed.norm", embeddings + "LayerNorm")
    for layer in range(architecture.encoder.layers):
        block, theirs = f"encoder.blocks.{layer}.", f"{prefix}transformer.layer.{layer}."
        yield Link(block + "attention.qkv", joined(theirs + "attention.", "q_lin", "k_lin", "v_lin"))
        yield link(block + "attention.out", theirs + "attention.out_lin")
        yield link(block + "attention_norm", theirs + "sa_layer_norm")
        yield link(block + "feedforward.up", theirs + "ffn.lin1")
        yield link(block + "feedforward.down", theirs + "ffn.lin2")
        yield link(block + "feedforward_norm", theirs + "output_layer_norm")
    yield link("heads.masked.dense", "vocab_transform")
    yield link("heads.masked.norm", "vocab_layer_norm")
    yield link("heads.masked.out", "vocab_projector")
    yield link("heads.sequence.dense", "pre_classifier")
    yield link("heads.sequence.out", "classifier")
    yield link("heads.token.out", "classifier")
    yield link("heads.span.out", "qa_outputs")


def _check(config: dict[str, Any]) -> None:
    require(config, "is_decoder", (False,), "use a decoder family")
    require(config, "add_cross_attention", (False,), "use an encoder–decoder family")
    require(config, "position_embedding_type", ("absolute", None), "this family has absolute positions only")


def _check_distilbert(config: dict[str, Any]) -> None:
    # transformers stores a sinusoidal table as a weight, so it loads like a learned one.
    require(config, "sinusoidal_pos_embds", (True, False), "it must be true or false")


def _write_inner(key: str) -> Callable[[Bert], dict[str, Any]]:
    return lambda family: {key: family.inner or 4 * family.width}


_KNOBS = {
    "vocab_size": "vocabulary",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "intermediate_size": "inner",
    "max_position_embeddings": "positions",
    "type_vocab_size": "segments",
    "hidden_act": "activation",
    "layer_norm_eps": "epsilon",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "classifier_dropout",
    "tie_word_embeddings": "tied",
    "initializer_range": "init_std",
}

BERT = Dialect(
    model_type="bert",
    family=Bert,
    knobs=_KNOBS,
    classes={
        "masked": "BertForMaskedLM",
        "masked+next-sentence": "BertForPreTraining",
        "next-sentence": "BertForNextSentencePrediction",
        "sequence": "BertForSequenceClassification",
        "token": "BertForTokenClassification",
        "span": "BertForQuestionAnswering",
        "none": "BertModel",
        "pooler": "BertModel",
    },
    prefix=lambda head: "" if head in ("pooler", "none") else "bert.",
    links=_bert_links,
    defaults={"intermediate_size": 3072},
    check=_check,
    write=_write_inner("intermediate_size"),
    ignored=(r"(bert\.)?embeddings\.position_ids", r"bert\.pooler\.dense\.(weight|bias)"),
)

ROBERTA = Dialect(
    model_type="roberta",
    family=Roberta,
    knobs={**_KNOBS, "pad_token_id": "pad"},
    classes={
        "masked": "RobertaForMaskedLM",
        "sequence": "RobertaForSequenceClassification",
        "token": "RobertaForTokenClassification",
        "span": "RobertaForQuestionAnswering",
        "none": "RobertaModel",
        "pooler": "RobertaModel",
    },
    prefix=lambda head: "" if head in ("pooler", "none") else "roberta.",
    links=_roberta_links,
    defaults={
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 1,
    },
    check=_check,
    write=_write_inner("intermediate_size"),
    tokens=lambda vocabulary: {"bos_token_id": 0, "eos_token_id": 2},
    ignored=(r"(roberta\.)?embeddings\.position_ids", r"roberta\.pooler\.dense\.(weight|bias)"),
)

DISTILBERT = Dialect(
    model_type="distilbert",
    family=DistilBert,
    knobs={
        "vocab_size": "vocabulary",
        "n_layers": "layers",
        "dim": "width",
        "n_heads": "heads",
        "hidden_dim": "inner",
        "max_position_embeddings": "positions",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "seq_classif_dropout": "classifier_dropout",
        "qa_dropout": "span_dropout",
        "tie_word_embeddings": "tied",
        "initializer_range": "init_std",
    },
    classes={
        "masked": "DistilBertForMaskedLM",
        "sequence": "DistilBertForSequenceClassification",
        "token": "DistilBertForTokenClassification",
        "span": "DistilBertForQuestionAnswering",
        "none": "DistilBertModel",
    },
    prefix=lambda head: "" if head == "none" else "distilbert.",
    links=_distilbert_links,
    defaults={"hidden_dim": 3072},
    check=_check_distilbert,
    write=_write_inner("hidden_dim"),
)
