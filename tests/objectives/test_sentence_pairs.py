"""Pairs are truly consecutive, or truly from another document."""

from pathlib import Path

import numpy as np
import pytest

from weft.errors import InputError
from weft.objectives.sentence_pairs import SentencePairs
from weft.tokenizer.train import train_tokenizer
from weft.tokens.shards import build_shards

ALICE = Path(__file__).parents[2] / "examples/alice.txt"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    tokenizer = train_tokenizer([ALICE], "wordpiece", 500)
    chapters = [text for text in ALICE.read_text().split("CHAPTER ") if len(text) > 500]
    folder = tmp_path_factory.mktemp("shards")
    return build_shards(chapters, tokenizer, folder, separator=3, sentences=True, shard_bytes=20_000)


def draw(pairs, most=64, count=600):
    for number in range(count):
        rng = np.random.default_rng((7, number))
        yield pairs.pair(int(rng.integers(len(pairs))), most, rng)


def document(shards, place):
    return int(np.searchsorted(shards.documents, place.start, side="right"))


def test_half_follow_and_half_come_from_another_document(shards):
    labels = []
    for pair in draw(SentencePairs(shards)):
        first, second = pair.places
        if pair.label == 0:
            assert first.stop == second.start
            assert document(shards, first) == document(shards, second)
        else:
            assert document(shards, first) != document(shards, second)
        labels.append(pair.label)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.06)


def test_sentence_order_swaps_half_of_the_pairs(shards):
    labels = []
    for pair in draw(SentencePairs(shards, "order")):
        first, second = pair.places if pair.label == 0 else reversed(pair.places)
        assert first.stop == second.start
        labels.append(pair.label)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.06)


def test_both_segments_have_text_no_separator_and_fit(shards):
    lengths = []
    for pair in draw(SentencePairs(shards)):
        assert len(pair.first) > 0
        assert len(pair.second) > 0
        assert 3 not in pair.first
        assert 3 not in pair.second
        assert len(pair.first) + len(pair.second) <= 64
        lengths.append(len(pair.first) + len(pair.second))
    assert np.mean(lengths) > 45


def test_segments_are_the_tape_where_they_say_they_are(shards):
    for pair in draw(SentencePairs(shards), count=50):
        for tokens, place in zip((pair.first, pair.second), pair.places, strict=True):
            np.testing.assert_array_equal(tokens, shards[place])


def test_texts_without_pairs_are_refused(tmp_path):
    tokenizer = train_tokenizer([ALICE], "wordpiece", 500)
    single = build_shards(["alice", "the queen"], tokenizer, tmp_path / "a", separator=3, sentences=True)
    with pytest.raises(InputError, match="two sentences"):
        SentencePairs(single)
    one = build_shards(["One. Two. Three."], tokenizer, tmp_path / "b", separator=3, sentences=True)
    with pytest.raises(InputError, match="two documents"):
        SentencePairs(one)
    assert len(SentencePairs(one, "order")) == 2
