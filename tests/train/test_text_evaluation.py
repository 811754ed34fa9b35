"""Saved language models on text: the same numbers as transformers on the same windows."""

import math

import numpy as np
import pytest
import torch
import transformers

import weft
from weft.errors import InputError
from weft.tokenizer.build import build_tokenizer
from weft.tokenizer.read import load_tokenizer
from weft.train import text_evaluation
from weft.train.text_evaluation import score_texts

TEXT = "the cat sat on the mat, and the dog ran to the house. " * 12
LENGTH, CONTEXT = 32, 8
SHAPE = {"layers": 2, "width": 16, "heads": 2, "positions": LENGTH, "seed": 5}


def make(tmp_path, family, kind):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    build_tokenizer([file], tmp_path / "tokenizer", kind, None, family=family)
    return weft.create(family, tokenizer=load_tokenizer(tmp_path / "tokenizer"), **SHAPE)


def score(model, text=TEXT, **options):
    return score_texts(model.network, model.tokenizer, lambda: iter([text]), **options)


def test_perplexity_is_that_of_transformers_on_the_same_windows(tmp_path):
    model = make(tmp_path, "gpt2", "char")
    model.save(tmp_path / "model")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "model").eval()
    tape = torch.tensor([*model.tokenizer.encode(TEXT), model.tokenizer.id_of("eos")])
    nats, done = [], 0
    while done < len(tape) - 1:
        begin = max(0, done - CONTEXT)
        window = tape[begin : begin + LENGTH + 1]
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(
                theirs(window[None, :-1]).logits[0], window[1:], reduction="none"
            )
        nats += losses[done - begin :].tolist()
        done = begin + len(window) - 1
    ours = score(model)
    assert ours.tokens == len(nats) == len(tape) - 1
    assert ours.figures["loss"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert ours.figures["perplexity"] == pytest.approx(math.exp(np.mean(nats)), rel=1e-5)
    bits = np.mean(nats) / math.log(2) * len(tape) / len(TEXT)
    assert ours.figures["bits_per_byte"] == pytest.approx(bits, rel=1e-5)
    low, high = ours.intervals["perplexity"].low, ours.intervals["perplexity"].high
    assert low < ours.figures["perplexity"] < high


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_masks_and_spans_are_the_same_each_time(tmp_path, family):
    model = make(tmp_path, "bert", "char") if family == "bert" else _t5(tmp_path)
    first, second = score(model), score(model)
    assert first.figures == second.figures
    assert 0 <= first.figures["accuracy"] <= 1
    assert 0 < first.tokens < len(model.tokenizer.encode(TEXT))


def _t5(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    build_tokenizer([tmp_path / "text.txt"], tmp_path / "tokenizer", "char", None, family="t5")
    shape = {"layers": 1, "width": 16, "heads": 2, "seed": 5}
    return weft.create("t5", tokenizer=load_tokenizer(tmp_path / "tokenizer"), **shape)


def test_an_ngram_stands_beside_where_training_text_is_given(tmp_path):
    scores = score(make(tmp_path, "gpt2", "char"), train=lambda: iter([TEXT]))
    assert scores.baseline["name"] == "6-gram"
    assert scores.baseline["perplexity"] < scores.figures["perplexity"]


def test_a_short_text_has_figures_without_an_interval(tmp_path):
    scores = score(make(tmp_path, "gpt2", "char"), "the cat")
    assert scores.tokens == len("the cat")
    assert scores.intervals == {}


def test_no_text_is_an_error(tmp_path):
    model = make(tmp_path, "gpt2", "char")
    with pytest.raises(InputError, match="no text to evaluate on"):
        score_texts(model.network, model.tokenizer, lambda: iter([]))


def test_progress_counts_windows_after_they_are_scored(tmp_path, monkeypatch):
    events, sums = [], text_evaluation.window_sums
    monkeypatch.setattr(text_evaluation, "_MOST_BATCH_TOKENS", 10 * LENGTH)
    monkeypatch.setattr(text_evaluation, "window_sums", lambda *given: events.append("scored") or sums(*given))
    monkeypatch.setattr(text_evaluation.Gauge, "add", lambda _, items, size=0: events.append(items))
    score(make(tmp_path, "gpt2", "char"))
    assert events[:4] == ["scored", 10, "scored", 10]
    assert events[::2] == ["scored"] * (len(events) // 2)
