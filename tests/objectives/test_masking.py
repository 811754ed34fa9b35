"""The statistics of masking, on many sequences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.objectives.masking import MaskSpec, Vocabulary, cover_round, mask_tokens

SIZE, MASK, SPECIAL = 1000, 4, frozenset({0, 1, 2, 3, 4})
CONTINUES = np.arange(SIZE) % 3 == 0
CONTINUES[:5] = False
WORDS = Vocabulary(SIZE, MASK, SPECIAL, CONTINUES)


def sequence(seed, length=128):
    rng = np.random.default_rng(seed)
    return np.concatenate([[2], rng.integers(5, SIZE, length - 2), [3]])


def masked(spec, count=400):
    for seed in range(count):
        ids = sequence(seed)
        yield ids, *mask_tokens(ids, spec, WORDS, np.random.default_rng((1, seed)))


@pytest.mark.parametrize("unit", ["token", "word", "span", "cover"])
@pytest.mark.parametrize("share", [0.15, 0.4])
def test_the_share_of_masked_tokens_is_as_asked(unit, share):
    shares = [len(places) / 126 for _, _, places in masked(MaskSpec(share, unit))]
    wanted = 1 / round(1 / share) if unit == "cover" else share
    assert np.mean(shares) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("unit", ["token", "word", "span", "cover"])
def test_eighty_ten_ten_and_nothing_else_changes(unit):
    hidden = kept = swapped = total = 0
    for ids, read, places in masked(MaskSpec(unit=unit)):
        others = np.setdiff1d(np.arange(len(ids)), places)
        assert (read[others] == ids[others]).all()
        assert (np.diff(places) > 0).all()
        hidden += (read[places] == MASK).sum()
        kept += (read[places] == ids[places]).sum()
        swapped += ((read[places] != ids[places]) & (read[places] != MASK)).sum()
        total += len(places)
    assert hidden / total == pytest.approx(0.8, abs=0.02)
    assert kept / total == pytest.approx(0.1, abs=0.015)
    assert swapped / total == pytest.approx(0.1, abs=0.015)


@pytest.mark.parametrize("unit", ["token", "word", "span", "cover"])
@given(seed=st.integers(0, 10**6), length=st.integers(3, 40))
def test_special_tokens_are_never_masked(unit, seed, length):
    ids = sequence(seed, length)
    ids[length // 2] = 3
    _, places = mask_tokens(ids, MaskSpec(0.5, unit), WORDS, np.random.default_rng(seed))
    assert not np.isin(ids[places], list(SPECIAL)).any()


@pytest.mark.parametrize("unit", ["word", "span"])
@given(seed=st.integers(0, 10**6))
def test_whole_words_stay_whole(unit, seed):
    ids = sequence(seed, 60)
    _, places = mask_tokens(ids, MaskSpec(0.3, unit), WORDS, np.random.default_rng(seed))
    chosen = set(places.tolist())
    for place in range(2, 59):
        if CONTINUES[ids[place]] and ids[place - 1] not in SPECIAL:
            assert (place in chosen) == (place - 1 in chosen)


def test_spans_are_runs():
    lengths = []
    for _, _, places in masked(MaskSpec(0.15, "span")):
        lengths += [len(run) for run in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)]
    alone = []
    for _, _, places in masked(MaskSpec(0.15, "token")):
        alone += [len(run) for run in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)]
    assert np.mean(lengths) > 2 * np.mean(alone)


@given(seed=st.integers(0, 10**6), length=st.integers(3, 80), share=st.sampled_from([0.1, 0.15, 0.25, 0.5]))
def test_the_cover_schedule_masks_every_token_exactly_once(seed, length, share):
    ids, spec = sequence(seed, length), MaskSpec(share, "cover")
    parts = round(1 / share)
    for first in (0, parts):
        places = []
        for epoch in range(first, first + parts):
            rng = np.random.default_rng((seed, cover_round(spec, epoch)))
            places += mask_tokens(ids, spec, WORDS, rng, epoch=epoch)[1].tolist()
        assert sorted(places) == list(range(1, length - 1))


def test_masks_are_dynamic_and_a_function_of_the_generator():
    ids = sequence(0)
    masks = [mask_tokens(ids, MaskSpec(), WORDS, np.random.default_rng(seed))[1] for seed in (1, 1, 2)]
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])


def test_nothing_to_mask_is_no_error():
    ids = np.array([2, 3])
    read, places = mask_tokens(ids, MaskSpec(), WORDS, np.random.default_rng(0))
    assert read.tolist() == [2, 3]
    assert len(places) == 0
