"""Models in CTranslate2 compute and write what they do in weft: every family and head that its format has."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import safetensors.numpy
import torch

import weft
from random_models import SHAPES
from task_models import scatter
from weft.api.arrays import arrays_of
from weft.api.model import Model
from weft.exports.ctranslate2.head_recipe import head_logits
from weft.exports.run import export_model
from weft.exports.samples import sample_sequences
from weft.interchange.folder import Description
from weft.model.network import Architecture, create_network
from weft.model.norm import NormSpec
from weft.model.positions import LinearScaling, Llama3Scaling

VOCABULARY, LONGEST, NEW = 70, 96, 64
CLOSE = 1e-4  # of logits around 10
THREADS = {"inter_threads": 1, "intra_threads": 1}
ENCODER = {"layers": 2, "width": 32, "heads": 4}
SHAPE = SHAPES | dict.fromkeys(("bert", "roberta", "distilbert"), ENCODER)

DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2 untied": {"tied": False},
    "gpt2 unscaled": {"tied": False, "scaled": False, "inner": 37, "activation": "relu"},
    "gpt2 with wide heads": {"tied": False, "head_width": 10, "activation": "gelu"},
    "gpt2 with rotary positions": {"tied": False, "positions": "rotary"},
    "gpt2 with sinusoidal positions": {"tied": False, "positions": "sinusoidal"},
    "llama": {},
    "llama with biases": {"tied": True, "attention_bias": True, "feedforward_bias": True},
    "llama with learned positions": {"positions": "learned"},
    "llama with linear scaling": {"scaling": LinearScaling(2.0), "theta": 500.0, "key_value_heads": 4},
    "llama with llama3 scaling": {"scaling": Llama3Scaling(8.0, 1.0, 4.0, 16), "theta": 1000.0, "head_width": 10},
    "qwen3": {},
    "qwen3 with wide heads": {"head_width": 12, "attention_bias": True, "key_value_heads": 2},
}
ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "t5": {},
    "t5 v1.1": {"gated": True, "activation": "gelu-tanh", "tied": False, "output_scaled": False},
    "t5 with few buckets": {"tied": False, "buckets": 8, "distance": 12, "decoder_layers": 1, "head_width": 10},
    "t5 with rotary positions": {"tied": False, "positions": "rotary"},
    "transformer": {},
    "transformer untied": {"tied": False},
    "transformer with two embeddings": {"shared_embedding": False, "scaled_embedding": False},
    "transformer with unequal sides": {
        "activation": "silu", "decoder_layers": 1, "decoder_heads": 2, "decoder_inner": 40,
    },
    "transformer with learned positions": {"tied": False, "positions": "learned"},
    "transformer with relative positions": {"tied": False, "positions": "relative"},
}  # fmt: skip
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"head": "masked"},
    "bert with two heads": {"head": "masked+next-sentence", "tied": False},
    "bert for texts": {"head": "sequence", "labels": 3},
    "bert for tokens": {"head": "token", "labels": 5, "activation": "relu"},
    "bert for spans": {"head": "span"},
    "bert with a pooler": {"head": "pooler"},
    "bert alone": {"head": "none"},
    "bert with rotary positions": {"head": "masked", "positions": "rotary"},
    "bert with relative positions": {"head": "masked", "positions": "relative"},
    "roberta": {"head": "masked"},
    "roberta for texts": {"head": "sequence", "labels": 1, "pad": 5, "segments": 2},
    "roberta for tokens": {"head": "token"},
    "distilbert": {"head": "masked"},
    "distilbert for texts": {"head": "sequence", "labels": 4},
    "distilbert for spans": {"head": "span"},
    "t5 for tokens": {"head": "token", "gated": True},
    "t5 alone": {"head": "encoder"},
}


def made(case: str, settings: dict[str, Any]) -> Model:
    family = case.split()[0]
    more = settings if "positions" in settings or family == "t5" else settings | {"positions": LONGEST}
    model = weft.create(family, **{"vocabulary": VOCABULARY, **SHAPE[family], **more})
    scatter(model.network, seed=1)
    with torch.no_grad():
        if model.network.architecture.embedding.scaled:  # or the last token alone would decide
            model.network.embed.tokens.weight /= 5
        for name, weight in model.network.named_parameters():
            if family == "t5" and name.endswith(("qkv.weight", "query.weight")):  # its scores are not divided by √D
                weight[: SHAPE["t5"]["heads"] * settings.get("head_width", 64)] /= 8
    return model


def opened(model: Model, folder: Path, precision: str = "fp32") -> tuple[Any, list[str], Any]:
    """The export in CTranslate2, its token strings, and what was written about it."""
    result = export_model(model, "ctranslate2", folder, precision=precision)
    kind, vocabulary = result.facts["runs_in"].removeprefix("ctranslate2."), ("vocabulary", "shared_vocabulary")
    tokens = next(read_json(folder / f"{name}.json") for name in vocabulary if (folder / f"{name}.json").is_file())
    # On a CPU, 16-bit floats are converted to 32.
    compute = {"compute_type": "float32"} if precision == "f16" else {}
    return getattr(ctranslate2, kind)(str(folder), **THREADS, **compute), tokens, result


def read_json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def far(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


def decoder_logits(generator: Any, sequences: list[list[int]]) -> list[np.ndarray]:
    return [np.array(generator.forward_batch([ids]))[0][:, :VOCABULARY] for ids in sequences]


def greedy(model: Model, sequences: list[list[int]]) -> list[list[int]]:
    return model.generate(sequences, strategy="greedy", max_new_tokens=NEW)


def written(runner: Any, sequences: list[list[int]], tokens: list[str]) -> list[list[int]]:
    texts = [[tokens[number] for number in ids] for ids in sequences]
    if isinstance(runner, ctranslate2.Generator):
        options = {"max_length": NEW, "include_prompt_in_result": False, "return_end_token": True}
        return [runner.generate_batch([text], **options)[0].sequences_ids[0] for text in texts]
    options = {"beam_size": 1, "max_decoding_length": NEW, "min_decoding_length": 0, "return_end_token": True}
    found = runner.translate_batch(texts, **options)
    return [[tokens.index(token) for token in one.hypotheses[0]] for one in found]


@pytest.mark.parametrize("case", DECODERS)
def test_a_decoder_has_the_same_logits_and_writes_the_same(case: str, tmp_path: Path):
    model = made(case, DECODERS[case])
    generator, tokens, result = opened(model, tmp_path / "export")
    sequences = sample_sequences(model, longest=LONGEST)
    assert [len(ids) for ids in sequences] == [1, 2, 3, 7, 33, LONGEST]
    expected = model.logits(sequences)
    assert far(expected, decoder_logits(generator, sequences)) < CLOSE
    together = np.array(generator.forward_batch(sequences))  # padded
    assert far(expected, [together[i, : len(ids), :VOCABULARY] for i, ids in enumerate(sequences)]) < CLOSE
    ours = greedy(model, sequences[:5])
    assert written(generator, sequences[:5], tokens) == ours
    if not model.network.head("causal").spec.tied:
        assert len({token for one in ours for token in one}) > 3  # so that they could differ
    assert result.comparison.logits < CLOSE and result.comparison.same_tokens == 1.0 and not result.comparison.notes


@pytest.mark.parametrize("case", ENCODER_DECODERS)
def test_an_encoder_decoder_has_the_same_probabilities_and_writes_the_same(case: str, tmp_path: Path):
    model = made(case, ENCODER_DECODERS[case])
    translator, tokens, result = opened(model, tmp_path / "export")
    sources = sample_sequences(model, longest=LONGEST)
    targets = [ids[: LONGEST - 1] for ids in sources[::-1]]  # a start token comes before
    start = model.start_end.start_id
    expected = []
    for target, logits in zip(targets, model.logits(sources, [[start, *ids[:-1]] for ids in targets]), strict=True):
        log_probs = torch.from_numpy(logits).log_softmax(-1).numpy()
        expected.append(log_probs[np.arange(len(target)), target])
    scored = translator.score_batch(*([[tokens[i] for i in ids] for ids in side] for side in (sources, targets)))
    theirs = [np.array(one.log_probs[: len(ids)]) for one, ids in zip(scored, targets, strict=True)]
    assert far(expected, theirs) < CLOSE
    ours = greedy(model, sources)
    assert written(translator, sources, tokens) == ours
    if not model.network.head("seq2seq").spec.tied:
        assert len({token for one in ours for token in one}) > 3
    assert result.comparison.logits < CLOSE and result.comparison.same_tokens == 1.0 and not result.comparison.notes


@pytest.mark.parametrize("case", ENCODERS)
def test_an_encoder_and_its_heads_are_the_same(case: str, tmp_path: Path):
    model = made(case, ENCODERS[case])
    encoder, _, result = opened(model, tmp_path / "export")
    sequences = sample_sequences(model)
    kinds = model.network.architecture.embedding.segments
    segments = [[place % 2 for place in range(len(ids))] for ids in sequences] if kinds > 1 else None
    output = encoder.forward_batch(sequences, token_type_ids=segments)  # padded
    hidden = np.array(output.last_hidden_state)
    rows = [hidden[i, : len(ids)] for i, ids in enumerate(sequences)]
    assert far(model.hidden(sequences, segments=segments), rows) < CLOSE
    found = {head["name"]: head for head in heads_in(tmp_path / "export")}
    assert set(found) == {kind for kind in model.network.heads if kind != "pooler"}
    weights = head_weights(tmp_path / "export")
    for kind in model.network.heads:
        head = model.network.head(kind)
        expected = arrays_of(model.network, sequences, None, segments, head, one_row=head.spec.pool != "every")
        pooled = list(np.array(output.pooler_output)) if head.spec.pool == "first" else rows
        is_whole = kind == "pooler"
        theirs = pooled if is_whole else [head_logits(x, found[kind], weights) for x in pooled]
        assert far(expected, theirs) < CLOSE
    assert result.comparison.logits < CLOSE and not result.comparison.notes


def heads_in(folder: Path) -> list[dict[str, Any]]:
    return read_json(folder / "heads.json") if (folder / "heads.json").is_file() else []


def head_weights(folder: Path) -> dict[str, np.ndarray]:
    file = folder / "heads.safetensors"
    return safetensors.numpy.load_file(file) if file.is_file() else {}


def changed_blocks(architecture: Architecture, side: str, **changes: Any) -> Architecture:
    stack = getattr(architecture, side)
    blocks = tuple(replace(block, **changes) for block in stack.blocks)
    return replace(architecture, **{side: replace(stack, blocks=blocks)})


def narrow_first(architecture: Architecture) -> Architecture:
    first, second = architecture.decoder.blocks
    first = replace(first, feedforward=replace(first.feedforward, inner=11))
    return replace(architecture, decoder=replace(architecture.decoder, blocks=(first, second)))


def post_norm(architecture: Architecture) -> Architecture:
    changed = changed_blocks(architecture, "decoder", order="post")
    return replace(changed, decoder=replace(changed.decoder, final_norm=False))


UNUSUAL: dict[str, Callable[[Architecture], Architecture]] = {
    "layers of unequal width": narrow_first,
    "post-norm": post_norm,
    "no final norm": lambda one: replace(one, decoder=replace(one.decoder, final_norm=False)),
    "norms without bias": lambda one: changed_blocks(one, "decoder", norm=NormSpec("layer", 1e-5, False)),
    "a norm on scaled embeddings": lambda one: replace(
        one, embedding=replace(one.embedding, norm=NormSpec("layer", 1e-5), scaled=True)
    ),
}


@pytest.mark.parametrize("change", UNUSUAL)
def test_architectures_of_no_family_that_the_format_can_hold(change: str, tmp_path: Path):
    usual = made("gpt2", {"tied": False})
    network = create_network(UNUSUAL[change](usual.network.architecture)).eval()
    scatter(network, seed=1)
    model = Model(network, Description(None, "causal"))
    generator, tokens, _ = opened(model, tmp_path / "export")
    sequences = sample_sequences(model)
    assert far(model.logits(sequences), decoder_logits(generator, sequences)) < CLOSE
    assert written(generator, sequences[:5], tokens) == greedy(model, sequences[:5])


@pytest.mark.parametrize(
    "case", ["gpt2 untied", "qwen3", "t5 v1.1", "transformer untied", "bert for texts", "t5 alone"]
)
@pytest.mark.parametrize(("precision", "bound"), [("int8", 0.25), ("f16", 0.01)])
def test_smaller_weights_differ_a_little_and_leave_the_model_alone(
    case: str, precision: str, bound: float, tmp_path: Path
):
    model = made(case, (DECODERS | ENCODER_DECODERS | ENCODERS)[case])
    before = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    whole = export_model(model, "ctranslate2", tmp_path / "fp32", compare=False)
    result = opened(model, tmp_path / "small", precision)[2]
    assert 0 < result.comparison.logits < bound * result.comparison.scale
    sizes = [(result.folder / "model.bin").stat().st_size, (whole.folder / "model.bin").stat().st_size]
    assert sizes[0] < 0.6 * sizes[1]
    assert all(torch.equal(before[name], weight) for name, weight in model.network.state_dict().items())
