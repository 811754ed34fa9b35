"""Against brute force: every pair's true likeness."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from weft.corpus.near_duplicates import (
    NEAR_DUPLICATE_SIMILARITY,
    SIGNATURE_SIZE,
    DuplicateGroups,
    band_keys,
    choose_representatives,
    group_similar,
    signature_similarity,
)
from weft.corpus.near_duplicates import shingles as shingles_of
from weft.corpus.near_duplicates import sign as sign_words
from weft.words import folded

ROOT = Path(__file__).parents[2]


def shingles(text):
    return shingles_of(folded(text))


def sign(texts):
    return sign_words([folded(text) for text in texts])


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
    signatures, groups = sign(texts), DuplicateGroups(len(texts))
    group_similar(signatures, band_keys(signatures).T, groups)
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
    errors = signature_similarity(signatures, one, other) - np.array([truth[pair] for pair in pairs])
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.5 / SIGNATURE_SIZE**0.5  # the binomial's, at its widest


def test_near_duplicates_are_found_and_others_are_not(planted):
    texts, truth = planted
    roots = grouped(texts)
    alike = [pair for pair, signature_similarity in truth.items() if signature_similarity >= 0.8]
    assert len(alike) > 1000
    assert np.mean([roots[i] == roots[j] for i, j in alike]) >= 0.95
    # Groups are chains: two texts below 0.5 may be joined by those between them. What counts is that every pair of a
    # group is joined by true likeness, link by link.
    joined = DuplicateGroups(len(texts))
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
    assert signature_similarity(sign([text, other]), np.array([0]), np.array([1]))[0] > 0.6


def test_texts_of_too_few_shingles_to_judge_by_are_like_nothing():
    thirteen, fourteen = (" ".join(map(str, range(count))) for count in (13, 14))
    roots = grouped(["", "!!!", "a", "a", thirteen, f"{thirteen}!", fourteen, f"{fourteen}!"])
    assert roots.tolist() == [0, 1, 2, 3, 4, 5, 6, 6]


def test_letters_of_scripts_without_spaces_make_longer_shingles_than_characters_or_words():
    counts = [len(shingles(text)) for text in ("a " * 20, "中" * 20, "ก" * 20, "中" * 5 + " a" * 5)]
    assert counts == [16, 16, 6, 6]


def test_signs_make_a_difference():
    text = " ".join(f"x{number} = a + b" for number in range(20))
    assert not set(shingles(text).tolist()) & set(shingles(text.replace("+", "<")).tolist()) - set(
        shingles(text.replace("+", "")).tolist()
    )


def chain(versions, step=2, words=60):
    """Texts of which each has a few words of the last replaced: neighbours are alike, the ends share nothing."""
    return [" ".join(f"w{number}" for number in range(at * step, at * step + words)) for at in range(versions)]


def test_of_a_chain_only_what_is_like_one_that_stays_goes():
    texts = chain(60)
    signatures = sign(texts)
    assert len(set(grouped(texts).tolist())) == 1

    def alike(one, other):
        return signature_similarity(signatures, one, other) >= NEAR_DUPLICATE_SIMILARITY

    best, beyond = choose_representatives(grouped(texts), np.array([len(text) for text in texts], np.uint64), alike)
    sets = [set(shingles(text).tolist()) for text in texts]
    stay = sorted(set(best.tolist()))
    assert all(best[number] == number for number in stay) and 10 < len(stay) < 40 and beyond == 0
    assert all(jaccard(sets[number], sets[other]) > 0.6 for number, other in enumerate(best))
    assert not any(alike(np.array([one]), np.array([other]))[0] for one, other in combinations(stay, 2))


def test_what_is_too_much_to_compare_stays(monkeypatch):
    monkeypatch.setattr("weft.corpus.near_duplicates.MOST_REPRESENTATIVES", 3)
    best, beyond = choose_representatives(
        np.zeros(10, np.int64), np.arange(10, dtype=np.uint64), lambda one, other: one < 0
    )
    assert best.tolist() == list(range(10)) and beyond == 7


def test_groups_are_closed_under_joining():
    groups = DuplicateGroups(6)
    for one, other in ((4, 5), (1, 4), (5, 2)):
        groups.join(one, other)
    assert groups.roots().tolist() == [0, 1, 1, 3, 1, 1]
