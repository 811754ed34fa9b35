"""The card of language models and encoders on plain text."""

import math
from pathlib import Path

import numpy as np
import pytest

import weft
from small_tasks import weft as run
from task_models import ALICE, tokenizer_of
from weft.compress.card.compare import compare_models
from weft.compress.card.texts import cut_pieces, draw

SHAPE = {"layers": 1, "width": 32, "heads": 2}
TEXT = ALICE.read_text("utf-8")[2000:9000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def text(folder: Path) -> Path:
    file = folder / "alice.txt"
    file.write_text(TEXT)
    return file


def saved(
    folder: Path, name: str, family: str, head: str | None = None, seed: int = 0, tokens: str = "", **more
) -> Path:
    model = weft.create(family, head=head, seed=seed, tokenizer=tokenizer_of(tokens or family), **{**SHAPE, **more})
    model.save(folder / name)
    return folder / name


def test_pieces_are_the_whole_text():
    tokenizer = tokenizer_of("gpt2")
    pieces = list(cut_pieces([TEXT], tokenizer, 50))
    assert "".join(pieces) == TEXT and len(pieces) > 10
    assert all(len(tokenizer.engine.encode(piece).ids) <= 52 for piece in pieces)


def test_drawn_numbers_are_distinct_and_in_order():
    assert draw(5, None) == draw(5, 9) == [0, 1, 2, 3, 4]
    assert len(set(draw(100, 10))) == 10 and draw(100, 10) == sorted(draw(100, 10))


def test_perplexity_is_that_of_scoring_each_piece(folder: Path, text: Path):
    paths = [saved(folder, f"gpt-{seed}", "gpt2", seed=seed, positions=64) for seed in (0, 1)]
    card = compare_models(paths, text, rounds=1)
    model = weft.load(paths[1])
    pieces = list(cut_pieces([TEXT], model.tokenizer, 62))
    end = model.tokenizer.id_of("eos")
    nats, tokens = 0.0, 0
    for piece in pieces:
        ids = model.tokenizer.engine.encode(piece, add_special_tokens=False).ids
        logits = model.logits([[end, *ids]])[0][:-1].astype(float)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        nats -= logs[np.arange(len(ids)), ids].sum()
        tokens += len(ids)
    figures = card.models[1].figures
    assert figures["perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / len(TEXT.encode()), rel=1e-4)
    assert card.metric == "perplexity" and card.headline == "alone" and card.alone_title == "32 tokens written"
    gap = card.models[1].against.differences["perplexity"]
    assert gap.low <= gap.value <= gap.high


def test_decoders_with_different_tokenizers_are_compared_in_bits_per_byte(folder: Path, text: Path):
    paths = [saved(folder, "bpe", "gpt2", positions=64), saved(folder, "other", "gpt2", tokens="bert", positions=64)]
    card = compare_models(paths, text, rounds=1)
    assert card.metric == "bits_per_byte" and "perplexity" not in card.models[1].figures
    assert any("has another tokenizer" in note for note in card.notes)


def test_one_other_tokenizer_takes_the_quality_from_no_other_model(folder: Path, text: Path):
    bert, other = (saved(folder, f"masked-{kind}", "bert", tokens=kind, positions=64) for kind in ("bert", "roberta"))
    alone = compare_models([bert, bert], text, rounds=1)
    card = compare_models([bert, other, bert], text, rounds=1)
    assert "loss" not in card.models[1].figures and card.models[1].against.smaller > 0
    assert card.models[2].figures["loss"] == card.models[0].figures["loss"]
    assert card.models[2].against.differences["loss"].value == 0
    assert alone.models[0].figures["loss"] == pytest.approx(card.models[0].figures["loss"], rel=0.1)  # fewer windows
    assert [note for note in card.notes if "another tokenizer" in note and "its loss cannot be compared" in note]
    gpt, by_bytes = (saved(folder, f"gpt-{kind}", "gpt2", tokens=kind, positions=64) for kind in ("gpt2", "bert"))
    figures = [model.figures for model in compare_models([gpt, by_bytes, gpt], text, rounds=1).models]
    assert ["perplexity" in one for one in figures] == [True, False, True]
    assert all("bits_per_byte" in one for one in figures)


def test_masked_models_are_scored_on_the_same_masks(folder: Path, text: Path):
    paths = [saved(folder, f"bert-{seed}", "bert", seed=seed, positions=64) for seed in (0, 1)]
    card = compare_models([*paths, paths[0]], text, rounds=1)
    before, other, same = (model.figures["loss"] for model in card.models)
    assert before == same != other
    assert before == pytest.approx(math.log(500), rel=0.2)  # fresh weights know nothing
    assert card.models[2].against.differences["loss"].value == 0


def test_encoder_decoders_are_scored_on_the_same_spans(folder: Path, text: Path):
    paths = [saved(folder, f"t5-{seed}", "t5", seed=seed) for seed in (0, 1)]
    card = compare_models(paths, text, rounds=1, limit=5)
    assert card.metric == "loss" and card.models[0].figures["loss"] > 1


def test_encoders_without_a_head_are_compared_by_their_vectors(folder: Path, text: Path):
    paths = [saved(folder, f"none-{seed}", "bert", "none", seed=seed, positions=64) for seed in (0, 1)]
    card = compare_models([paths[0], paths[0], paths[1]], text, rounds=1)
    assert [model.figures["cosine"] for model in card.models[:2]] == [1, 1]
    assert card.models[1].intervals["cosine"] == (1, 1)
    first, second = (weft.load(path).embed(list(cut_pieces([TEXT], tokenizer_of("bert"), 62))) for path in paths)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert card.models[2].figures["cosine"] == pytest.approx(cosines.mean(), abs=1e-5)
    assert "mean cosine with the vectors before" in card.verdict


def test_vectors_of_another_width_are_left_out(folder: Path, text: Path):
    paths = [saved(folder, "w32", "bert", "none"), saved(folder, "w64", "bert", "none", width=64)]
    card = compare_models(paths, text, rounds=1, limit=3)
    assert card.verdict.endswith("quality not comparable") and any("width" in note for note in card.notes)


def test_models_that_predict_different_things_are_refused(folder: Path, text: Path, tmp_path: Path):
    decoder, encoder = saved(folder, "d", "gpt2", tokens="bert"), saved(folder, "e", "bert")
    assert "do not predict the same" in run("compare", encoder, decoder, "--data", text).sentence
    headless = saved(folder, "h", "bert", "none")
    assert "no language model" in run("compare", encoder, headless, "--data", text).sentence
    assert "has another head" in run("compare", headless, encoder, "--data", text).sentence
    assert "--column goes with a task" in run("compare", encoder, encoder, "--data", text, "--column", "a=b").sentence
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    assert "text" in run("compare", encoder, encoder, "--data", empty).sentence
