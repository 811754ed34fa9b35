"""Against brute force: every pair's true likeness."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from weft.corpus.near_duplicates import ORDERS, Groups, band_keys, group, likeness, plain_words
from weft.corpus.near_duplicates import shingles as shingles_of
from weft.corpus.near_duplicates import sign as sign_words
from weft.words import words_of

ROOT = Path(__file__).parents[2]


def shingles(text):
    return shingles_of(plain_words(text))


def sign(texts):
    return sign_words([plain_words(text) for text in texts])


def paragraphs(count, words=80):
    """Real text in pieces of so many words."""
    found = (ROOT / "examples/austen.txt").read_text().split()
    return [" ".join(found[start : start + words]) for start in range(0, count * words, words)]


def edited(text, share, chance):
    """With a share of its words changed, dropped or doubled."""
    words = []
    for word in text.split():
        if chance.random() < share:
            words += chance.choice([[], [word, word], [f"{word}x"], [f"new{chance.randrange(10**6)}"]])
        else:
            words.append(word)
    return " ".join(words)


def grouped(texts):
    signatures, groups = sign(texts), Groups(len(texts))
    group(signatures, band_keys(signatures).T, groups)
    return groups.roots()


def jaccard(one, other):
    return len(one & other) / len(one | other)


@pytest.fixture(scope="module")
def planted():
    """Originals and copies with 0 to 40 % of their words edited, in a random order; with the true likeness of pairs."""
    chance = random.Random(1)
    originals = paragraphs(250)
    texts = originals + [
        edited(text, share, chance) for text in originals for share in (0.0, 0.01, 0.02, 0.05, 0.1, 0.4)
    ]
    chance.shuffle(texts)
    sets = [set(shingles(text).tolist()) for text in texts]
    truth = {(i, j): jaccard(sets[i], sets[j]) for i, j in combinations(range(len(texts)), 2) if sets[i] & sets[j]}
    return texts, truth


def test_the_signature_estimates_the_likeness(planted):
    texts, truth = planted
    signatures = sign(texts)
    pairs = list(truth)
    one, other = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    errors = likeness(signatures, one, other) - np.array([truth[pair] for pair in pairs])
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.5 / ORDERS**0.5  # the binomial's, at its widest


def test_near_duplicates_are_found_and_others_are_not(planted):
    texts, truth = planted
    roots = grouped(texts)
    alike = [pair for pair, likeness in truth.items() if likeness >= 0.8]
    assert len(alike) > 1000
    assert np.mean([roots[i] == roots[j] for i, j in alike]) >= 0.95
    # Groups are chains: two texts below 0.5 may be joined by those between them. What counts is that every pair of a
    # group is joined by true likeness, link by link.
    joined = Groups(len(texts))
    for (i, j), true in truth.items():
        if true >= 0.5:
            joined.join(i, j)
    pairs = [(i, j) for i, j in combinations(range(len(texts)), 2) if roots[i] == roots[j]]
    assert np.mean([joined.root(i) == joined.root(j) for i, j in pairs]) >= 0.99


def test_a_signature_does_not_depend_on_the_texts_beside_it(planted):
    texts, _ = planted
    parts = [sign(texts[:100]), sign(texts[100:101]), sign(texts[101:])]
    assert np.array_equal(sign(texts), np.concatenate(parts))


def test_case_and_punctuation_make_no_difference_and_chinese_has_shingles():
    assert np.array_equal(shingles("Hello, World! It is a Fox."), shingles("hello world it is a fox"))
    text = "却说那女娲氏炼石补天之时，于大荒山无稽崖炼成高经十二丈、方经二十四丈顽石三万六千五百零一块。"
    other = text.replace("大荒山", "大青山")
    assert jaccard(set(shingles(text).tolist()), set(shingles(other).tolist())) > 0.7
    assert likeness(sign([text, other]), np.array([0]), np.array([1]))[0] > 0.6


def test_a_latin_letter_does_not_swallow_the_chinese_behind_it():
    assert words_of("第3章iPhone手机") == ["第", "3", "章", "iPhone", "手", "机"]


def test_texts_without_words_are_like_nothing_and_short_ones_like_their_copies():
    roots = grouped(["", "…", "!!!", "a", "a", "b", "one two", "one two", "one three"])
    assert roots.tolist() == [0, 1, 2, 3, 3, 5, 6, 6, 8]


def test_groups_are_closed_under_joining():
    groups = Groups(6)
    for one, other in ((4, 5), (1, 4), (5, 2)):
        groups.join(one, other)
    assert groups.roots().tolist() == [0, 1, 1, 3, 1, 1]
