"""The chapter on text: each formula as written gives what weft computes."""

import hashlib
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.corpus import near_duplicates
from weft.corpus.drift import find_drift
from weft.corpus.near_duplicates import SIGNATURE_SIZE, band_keys, shingles, sign, signature_similarity
from weft.corpus.quality import RULES, MeasuredText, Thresholds
from weft.corpus.split import Division, Shares, texts_of
from weft.sources.documents import Document
from weft.splitmix64 import GOLDEN_GAMMA, mix64
from weft.theory.models import guide_model
from weft.theory.written import text as written
from weft.tokenizer.report import report_on_tokenizer
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer
from weft.tokens import order
from weft.tokens.keyed_shuffle import KeyedShuffle, _permute, shuffle_epochs
from weft.tokens.order import Order

seeds = st.integers(0, 2**31)
strings = st.text("ab1é٣ ", max_size=8)


def breaks(rule, text, **limits):
    return RULES[rule](MeasuredText(text), replace(Thresholds(), **limits))


def breaks_only_above(rule, text, name, value):
    """The rule is broken by a limit just below the value, not by the value itself, and never without a limit."""
    assert not breaks(rule, text, **{name: None})
    assert not breaks(rule, text, **{name: value})
    assert breaks(rule, text, **{name: value - 1e-6})


@given(strings)
def test_quality_rules(text):
    breaks_only_above("digits", text, "digits", written.digit_share(text) if text else 0.0)
    words = text.split()
    mean = written.mean_word_length(words) if words else 0.0
    assert not breaks("word length", text, word_length=(mean, mean))
    assert breaks("word length", text, word_length=(mean + 1e-6, mean + 1))
    assert breaks("word length", text, word_length=(mean - 1, mean - 1e-6))
    breaks_only_above("digits", "1", "digits", 1.0)
    assert not breaks("word length", "abc", word_length=(3, 3))


@given(st.lists(st.sampled_from(["a", "bc", "def"]), max_size=5))
def test_repetition(lines):
    text = "\n".join(lines)
    found = written.repeated_line_shares(lines, len(text)) if lines else (0.0, 0.0)
    limits = ("repeated_lines", "repeated_line_text")
    for name, other, value in zip(limits, reversed(limits), found, strict=True):
        assert not breaks("repeated lines", text, **{name: value, other: None})
        assert breaks("repeated lines", text, **{name: value - 1e-6, other: None})
        assert breaks("repeated lines", text, **{name: value - 1e-6, other: 1.0})


def texts_with_shared_words(seed, count=3):
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(24)]
    return [" ".join([*words[: rng.integers(14, 24)], f"x{rng.integers(3)}"]) for _ in range(count)]


@settings(max_examples=15)
@given(seeds)
def test_minhash(seed):
    texts = texts_with_shared_words(seed)
    sets = [set(shingles(text).tolist()) for text in texts]
    found = sign(texts)
    factors = [written.mixed_number(k * GOLDEN_GAMMA % 2**64) | 1 for k in range(1, SIGNATURE_SIZE + 1)]
    expected = [[written.minimum_hash(A, a) for a in factors] for A in sets]
    np.testing.assert_array_equal(found, expected)
    pairs = list(product(range(3), repeat=2))
    with patch.object(near_duplicates, "_PAIR_BLOCK", 2):
        similar = signature_similarity(found, *np.array(pairs).T)
    np.testing.assert_allclose(similar, [written.agreement(found[i], found[j]) for i, j in pairs])
    for (i, j), estimate in zip(pairs, similar, strict=True):
        assert abs(estimate - written.jaccard(sets[i], sets[j])) < 0.25


@given(seeds)
def test_banding(seed):
    signatures = np.random.default_rng(seed).integers(0, 2, (4, SIGNATURE_SIZE)).astype(np.uint32)
    signatures[1, :60] = signatures[0, :60]  # half of the bands agree
    signatures[2] = 2**32 - 1 - signatures[2]
    factors = [written.mixed_number(k * GOLDEN_GAMMA % 2**64) | 1 for k in range(1, 7)]
    expected = [
        [sum(int(x) * a for x, a in zip(band, factors, strict=True)) % 2**64 for band in one.reshape(20, 6)]
        for one in signatures
    ]
    keys = band_keys(signatures)
    np.testing.assert_array_equal(keys, np.array(expected, np.uint64))
    for i, j in product(range(4), repeat=2):
        equal = (signatures[i] == signatures[j]).tolist()
        assert (keys[i] == keys[j]).any() == written.agrees_in_a_band(equal, 6)


@given(st.floats(0, 1), st.integers(1, 3), st.integers(1, 3))
def test_the_chance_of_a_band_is_the_sum_over_all_cases(J, r, b):
    cases = product([True, False], repeat=r * b)
    expected = sum(
        J ** sum(case) * (1 - J) ** (r * b - sum(case)) for case in cases if written.agrees_in_a_band(case, r)
    )
    assert written.chance_of_a_band(J, r, b) == pytest.approx(expected)


def documents(texts):
    return (Document(text, Path("one.txt"), number) for number, text in enumerate(texts))


@settings(max_examples=10)
@given(st.integers(100, 110), st.floats(0.05, 0.4), st.floats(0.05, 0.4), seeds)
def test_split_by_hash(count, a, b, seed):
    texts = [f"{seed} {number}" for number in range(count)]
    found = {
        split: list(texts_of(split, lambda: documents(texts), Shares(a, b)))
        for split in ("train", "validation", "test")
    }
    for text in texts:
        u = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
        assert [split for split in found if text in found[split]] == [written.side_of(u, a, b)]
    division = Division(Shares(a, b), (a, a + b))
    assert [division.side(u) for u in (a, a + b)] == [written.side_of(u, a, b) for u in (a, a + b)]
    few = texts[:10]  # of few documents, those with the lowest hashes
    held = list(texts_of("validation", lambda: documents(few), Shares(0.1)))
    places = {text: int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) for text in few}
    assert held == [min(few, key=places.__getitem__)]


ALPHABET = sorted({*map(chr, range(33, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 324))})


def merges_of(text, most):
    """Merged pairs by the formula. Ties go to the pair that has the lower numbers."""
    first, *others = text.split(" ")
    words = Counter([tuple(first), *(("Ġ", *word) for word in others)])
    numbers = {character: number for number, character in enumerate(ALPHABET)}
    found = []
    while len(found) < most and (counts := written.pair_counts(words)):
        pair = min(counts, key=lambda pair: (-counts[pair], *map(numbers.__getitem__, pair)))
        merged = Counter()
        for word, n in words.items():
            merged[written.merged(word, pair)] += n
        words = merged
        numbers.setdefault("".join(pair), len(numbers))
        found.append(pair)
    return found


@settings(max_examples=10)
@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=2, max_size=8), st.integers(1, 6))
def test_merges(words, most):
    text = " ".join(words)
    pairs = merges_of(text, most)
    tokens = list(dict.fromkeys(map("".join, pairs)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text(text, "utf-8")
        engine = train_tokenizer([Path(folder, "text.txt")], "bpe", 257 + len(tokens)).engine
    vocabulary = engine.get_vocab()
    assert len(ALPHABET) == 256 and engine.get_vocab_size() == 257 + len(tokens)
    assert sorted(vocabulary, key=vocabulary.__getitem__) == ["<|endoftext|>", *ALPHABET, *tokens]


@settings(max_examples=15)
@given(st.lists(st.text("abcdefghijklmnopqrstuvwxyzé中 .", max_size=40), max_size=3))
def test_bytes_per_token(texts):
    tokenizer = guide_model().tokenizer
    texts += ["the quick brown fox jumps over a lazy dog, and 12 sphinxes of black quartz judge my vow", "é中 the the"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_text("abcdefghijklmnop qrstuvwxyz")
        letters = train_tokenizer([Path(folder, "text.txt")], "char", family="bert")
    for one in (tokenizer, letters):
        tokens = [one.engine.encode(text, add_special_tokens=False).tokens for text in texts]
        flat = [token for row in tokens for token in row]
        found = report_on_tokenizer(one, texts)
        assert found.bytes_per_token == round(written.bytes_per_token("".join(texts), flat), 3)
        assert (found.documents, found.tokens, found.used) == (len(texts), len(flat), len(set(flat)))
        assert found.bytes == len("".join(texts).encode()) and found.vocabulary == one.engine.get_vocab_size()
        unknown = None if one is tokenizer else "[UNK]"
        assert found.unknown_rate == pytest.approx(flat.count(unknown) / len(flat))
        ordered = [token for token, _ in Counter(flat).most_common() if token != unknown]
        assert found.commonest == ordered[:20] and found.rarest == ordered[-20:][::-1]
        special = {one.engine.id_to_token(number) for number in one.special_ids}
        words = set(one.engine.get_vocab()) - special
        assert found.longest == sorted(words, key=lambda token: (-len(token), token))[:20]
    assert report_on_tokenizer(letters, ["ä"]).unknown_rate == report_on_tokenizer(letters, ["a"]).bytes_per_token == 1
    assert report_on_tokenizer(Tokenizer(letters.engine, {}, {}), ["ä"]).unknown_rate == 0
    nothing = report_on_tokenizer(letters, [])
    assert nothing.bytes_per_token == nothing.unknown_rate == 0


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), st.lists(st.integers(1, 7), min_size=3, max_size=3), seeds)
def test_mixing(weights, sizes, seed):
    sizes, R = sizes[: len(weights)], 10
    with patch.object(order, "ROUND_SIZE", R):
        found = Order(tuple(sizes), tuple(map(float, weights)), seed)[range(3 * R)]
    for start in range(0, 3 * R, R):
        counts = Counter(one.source for one in found[start : start + R])
        assert [counts[k] for k in range(len(weights))] == written.slots_of(weights, R)
    for k, size in enumerate(sizes):  # each source goes through its own samples in its own order
        mine = [(one.epoch, one.sample) for one in found if one.source == k]
        alone = Order((size,), (1.0,), seed + k)[range(len(mine))]
        assert mine == [(one.epoch, one.sample) for one in alone]
    if len(weights) > 1:
        slots = [int(KeyedShuffle(R, seed, 0)[place]) for place in range(R)]
        pattern = np.repeat(range(len(weights)), written.slots_of(weights, R))
        assert [one.source for one in found[:R]] == pattern[slots].tolist()


@given(st.integers(1, 40), st.integers(0, 1000), st.integers(0, 5), seeds)
def test_shuffle(size, seed, epoch, x):
    h = next(h for h in range(1, 9) if 4**h >= size)
    keys = [np.random.SeedSequence((seed, e)).generate_state(4, np.uint64).tolist() for e in (epoch, epoch + 1)]
    values = np.arange(4**h, dtype=np.uint64)
    once = _permute(values, np.array(keys, np.uint64), values.astype(int) % 2, h)
    assert once.tolist() == [written.feistel(place, keys[place % 2], h) for place in range(4**h)]
    found = shuffle_epochs(size, seed, np.repeat([epoch, epoch + 1], size), np.tile(np.arange(size), 2))
    expected = [written.shuffled_place(place, k, h, size) for k in keys for place in range(size)]
    assert found.tolist() == expected
    assert sorted(expected[:size]) == list(range(size))
    assert written.mixed_number(x) == int(mix64(np.array([x], np.uint64))[0])


counts = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1)


@given(counts, counts)
def test_drift(p, q):
    def report(shares):
        return {
            "counts": {"documents": 1, "documents_read": 1, "bytes": 1, "dropped": {}},
            "lengths": {"kept": shares},
            "languages": {"kept": {}},
            "sources": [],
        }

    def lengths(before, now):
        return next(one for one in find_drift(report(before), report(now)) if one.what == "lengths, all together")

    found = lengths(p, q)
    assert found.change == found.now == pytest.approx(written.total_variation(p, q), abs=1e-12)
    assert found.before == 0 and found.threshold == 0.1
    assert lengths({}, q).change == pytest.approx(0.5)
