"""Every language model has a baseline on the same tokens."""

import math
from collections import Counter

import numpy as np
import pytest

import weft
from weft.metrics.ngram import NGram
from weft.recipe.file import read_recipe
from weft.tokens.shards import open_shards
from weft.train import ngram_baseline as baseline
from weft.train.pretrain import pretrain

RECIPE = """
name: counted
corpus: {{sources: [{{path: a.txt}}, {{path: b.txt}}], documents: {unit}, splits: {{validation: 0.2}}}}
tokenizer: {{kind: {kind}}}
model: {{family: {family}, layers: 1, width: 32, heads: 2}}
pretrain: {{objective: {objective}, budget: 2 steps, sequence_length: 32, batch_tokens: 256}}
"""


def run(place, unit="file", **values):
    words = np.random.default_rng(0).choice(["the", "cat", "sat", "on", "a", "mat.", "old"], (2, 4000))
    for name, row in zip("ab", words, strict=True):
        (place / f"{name}.txt").write_text(("\n" if unit == "line" else " ").join(row))
    (place / "r.yml").write_text(RECIPE.format(unit=unit, **values))
    results = pretrain(read_recipe(place / "r.yml"), place, place / "run")
    parts = [[open_shards(place / f"run/tokens/{part}/{i}") for i in range(2)] for part in ("train", "validation")]
    return results, parts, (place / "run/report.html").read_text()


def test_a_causal_model_stands_beside_an_n_gram(tmp_path):
    results, (train, held_out), page = run(tmp_path, kind="char", family="gpt2", objective="causal")
    known, asked = (np.concatenate([part[:] for part in parts]) for parts in (train, held_out))
    bits = NGram(known, int(known.max()) + 1, 6).loss(asked) / math.log(2)
    per_character = bits * len(asked) / sum(part.characters for part in held_out)
    found = results["by_counting"]
    assert found["name"] == "6-gram" and found["tokens"] == len(known)
    assert found["bits_per_character"] == pytest.approx(per_character)
    assert found["perplexity"] == pytest.approx(2**bits)
    assert "bits per character, 6-gram" in page and f"{per_character:.3f}" in page


def test_a_masked_one_beside_the_commonest_token_that_is_ever_hidden(tmp_path):
    results, (train, held_out), page = run(tmp_path, kind="char", family="modernbert", objective="masked", unit="line")
    special = weft.load(tmp_path / "run/model").tokenizer.special_ids
    known, asked = ([int(t) for part in parts for t in part[:] if t not in special] for parts in (train, held_out))
    ((commonest, _),) = Counter(known).most_common(1)
    share = asked.count(commonest) / len(asked)
    assert Counter(int(token) for part in train for token in part[:]).most_common(1)[0][0] in special
    assert results["by_counting"] == {"name": "commonest token", "validation_masked_accuracy": pytest.approx(share)}
    assert "masked words found, commonest token" in page


def test_of_long_texts_a_part_of_every_source_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(baseline, "_FEWEST_COUNTED", 1000)
    results, (train, _), _ = run(tmp_path, kind="char", family="gpt2", objective="causal")
    assert 990 <= results["by_counting"]["tokens"] <= 1000
    some = baseline._some(train, 1000)
    first, second = (int(len(part) * 1000 / sum(map(len, train))) for part in train)
    assert some.tolist() == [*train[0][:first], *train[1][:second]] and abs(first - second) < 50


def test_spans_have_no_classical_method():
    assert baseline.ngram_baseline([], [], "seq2seq", frozenset(), 0) == {}
