"""What GGUF cannot take is refused with a sentence: what, why, and what to do instead."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.exports.gguf.refusals import why_not_gguf
from weft.exports.run import export_model
from weft.interchange.folder import Description
from weft.model.heads import DenseSpec
from weft.model.network import Architecture, create_network
from weft.model.norm import NormSpec
from weft.model.positions import Relative
from weft.model.stack import LocalSpec

SMALL = {"layers": 2, "width": 32, "heads": 2, "vocabulary": 70}


def made(family: str, **more: Any) -> weft.Model:
    shape = {**SMALL, **more}
    if family == "lstm":
        shape.pop("heads")
    return weft.create(family, **shape)


def changed(model: weft.Model, change: Callable[[Architecture], Architecture]) -> weft.Model:
    architecture = change(model.network.architecture)
    return weft.Model(create_network(architecture), Description(None, model.description.head))


def with_blocks(change: Callable[[Any], Any], side: str = "decoder", *, only_last: bool = False):
    def apply(architecture: Architecture) -> Architecture:
        stack = getattr(architecture, side)
        blocks = tuple(
            change(block) if not only_last or number == stack.layers - 1 else block
            for number, block in enumerate(stack.blocks)
        )
        return replace(architecture, **{side: replace(stack, blocks=blocks)})

    return apply


def feedforward(**changes: Any) -> Callable[[Any], Any]:
    return lambda block: replace(block, feedforward=replace(block.feedforward, **changes))


def local(architecture: Architecture) -> Architecture:
    return replace(architecture, decoder=replace(architecture.decoder, local=LocalSpec((1,), 4, 10_000.0)))


def biased_head(architecture: Architecture) -> Architecture:
    return replace(architecture, heads=(replace(architecture.heads[0], bias="trained"),))


CASES: dict[str, tuple[Callable[[], weft.Model], str]] = {
    "LSTM": (lambda: made("lstm"), "llama.cpp has no graph for an LSTM. Use --to onnx."),
    "Transformer": (lambda: made("transformer"), "no graph for the original Transformer. Use --to ctranslate2"),
    "GPT-2 with rotary positions": (
        lambda: made("gpt2", positions="rotary"),
        "with learned positions only, and this model has rotary ones. Use --to onnx.",
    ),
    "Llama with learned positions": (
        lambda: made("llama", positions="learned"),
        "with rotary positions only, and this model has learned ones",
    ),
    "BERT with sinusoids": (lambda: made("bert", positions="sinusoidal"), "this model has sinusoidal ones"),
    "T5 with other distances": (lambda: made("t5", distance=64), "reach 64 tokens; llama.cpp's T5 has 128 built in"),
    "T5 with a deep decoder": (lambda: made("t5", decoder_layers=3), "decoder has 3 layers, its encoder 2"),
    "T5 with SiLU": (lambda: made("t5", gated=True, activation="silu"), "and this model has gated silu"),
    "T5 without a head": (lambda: made("t5", head="none"), "a T5 with a decoder for writing text only"),
    "T5 classifier": (lambda: made("t5", head="sequence"), "classifiers on BERT-like encoders only"),
    "unequal layers": (
        lambda: changed(made("gpt2"), with_blocks(feedforward(inner=64), only_last=True)),
        "its layers differ in size or kind",
    ),
    "local attention": (lambda: changed(made("llama"), local), "some of its layers have local attention"),
    "GPT-2 with ReLU": (
        lambda: made("gpt2", activation="relu"),
        "with gelu or gelu-tanh, and this model has relu",
    ),
    "GPT-2 without a scale": (lambda: made("gpt2", scaled=False), "divides attention scores by the root"),
    "GPT-2 with RMSNorm": (
        lambda: changed(made("gpt2"), with_blocks(lambda one: replace(one, norm=NormSpec("rms", 1e-5, False)))),
        "with LayerNorm, and this model has RMSNorm",
    ),
    "GPT-2 with wide heads": (
        lambda: made("gpt2", head_width=32),
        "as wide as the model together (32), and these are 2 × 32",
    ),
    "GPT-2, gated": (
        lambda: changed(made("gpt2"), with_blocks(feedforward(gated=True))),
        "and this model has gated gelu-tanh",
    ),
    "Llama with GELU": (lambda: made("llama", activation="gelu"), "with gated silu, and this model has gated gelu"),
    "Llama, post-norm": (
        lambda: changed(made("llama"), with_blocks(lambda one: replace(one, order="post"))),
        "its norms are in other places than those of llama.cpp's llama",
    ),
    "Qwen3 with biases": (lambda: made("qwen3", attention_bias=True), "no biases in a model that normalizes queries"),
    "an output bias": (
        lambda: changed(made("gpt2"), biased_head),
        "its output layer has parts",
    ),
    "BERT with ReLU": (lambda: made("bert", activation="relu"), "and this model has relu"),
    "ModernBERT with biases": (lambda: made("modernbert", norm_bias=True), "has no biases in the norms of this family"),
    "ModernBERT, odd layers": (
        lambda: made("modernbert", layers=4, local_layers=(0, 2)),
        "global attention in layers 0, n, 2n …, and this model in others",
    ),
    "DistilBERT classifier": (
        lambda: made("distilbert", head="sequence"),
        "has a layer with tanh before its output, and this one has a layer with relu. Use --to onnx.",
    ),
    "GPT-2 classifier": (lambda: made("gpt2", head="sequence"), "classifiers on BERT-like encoders only"),
    "tagger": (lambda: made("bert", head="token"), "no head that gives labels for each token"),
    "question answering": (lambda: made("roberta", head="span"), "no head that gives the start and end of an answer"),
    "next sentence": (lambda: made("bert", head="next-sentence"), "no next-sentence head"),
    "BERT with a pooled mean": (
        lambda: changed(
            made("bert", head="sequence"), lambda one: replace(one, heads=(replace(one.heads[0], pool="mean"),))
        ),
        "reads the first token, and this one the mean",
    ),
    "classifier with a norm": (
        lambda: changed(
            made("bert", head="sequence"),
            lambda one: replace(one, heads=(replace(one.heads[0], dense=DenseSpec("tanh", norm=NormSpec())),)),
        ),
        "a bias or a norm where llama.cpp's has none",
    ),
    "BERT with relative positions": (
        lambda: changed(made("bert"), lambda one: replace(one, embedding=replace(one.embedding, positions=Relative()))),
        "this model has relative ones",
    ),
}


@pytest.mark.parametrize(("make", "reason"), CASES.values(), ids=CASES)
def test_the_sentence_says_why(make: Callable[[], weft.Model], reason: str):
    said = why_not_gguf(make(), "fp32")
    assert said is not None
    assert reason in said
    assert said.endswith(".")
    assert "--to " in said


@pytest.mark.parametrize("name", ["pair", "similarity"])
def test_a_bert_tuned_on_pairs_is_refused_and_others_are_warned(name: str):
    facts = {"task": {"name": name}}
    bert, roberta = (made(family, head="sequence") for family in ("bert", "roberta"))
    bert.facts = roberta.facts = facts
    assert why_not_gguf(bert, "fp32") == (
        f"it was tuned on pairs of texts ({name}), and llama.cpp gives both the same segment. Use --to onnx."
    )
    assert why_not_gguf(roberta, "fp32") is None


def test_the_export_ends_with_the_sentence_and_writes_nothing(tmp_path: Path):
    with pytest.raises(weft.InputError, match=r"^This lstm cannot be exported to GGUF: llama.cpp has no graph"):
        export_model(made("lstm"), "gguf", tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_a_precision_of_another_target_is_refused(tmp_path: Path):
    with pytest.raises(weft.InputError, match=r"GGUF has no int8.* It has: fp32, f16, bf16, q8_0"):
        export_model(made("gpt2"), "gguf", tmp_path / "export", precision="int8")
