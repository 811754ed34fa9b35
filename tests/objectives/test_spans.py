import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.objectives.spans import corrupt_spans, restore_spans

SENTINELS = list(range(100, 200))


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=300), st.integers(0, 10**6), st.sampled_from([0.05, 0.15, 0.5])
)
def test_input_and_target_together_are_the_text(ids, seed, share):
    ids = np.asarray(ids)
    source, target = corrupt_spans(ids, SENTINELS, np.random.default_rng(seed), share=share)
    np.testing.assert_array_equal(restore_spans(source, target, SENTINELS), ids)
    marks = [token for token in source if token >= 100]
    assert marks == SENTINELS[: len(marks)]
    assert [token for token in target if token >= 100] == SENTINELS[: len(marks) + 1]
    assert target[-1] == SENTINELS[len(marks)]


def test_fifteen_per_cent_in_spans_of_three():
    cut, spans = [], []
    for seed in range(300):
        _, target = corrupt_spans(np.arange(100), SENTINELS, np.random.default_rng(seed))
        spans.append(sum(token >= 100 for token in target) - 1)
        cut.append(len(target) - spans[-1] - 1)
    assert np.mean(cut) == 15
    assert np.mean(cut) / np.mean(spans) == pytest.approx(3.0, abs=0.01)


def test_every_place_is_cut_about_equally_often():
    counts = np.zeros(60)
    for seed in range(3000):
        source, _ = corrupt_spans(np.arange(60), SENTINELS, np.random.default_rng(seed))
        counts[np.setdiff1d(np.arange(60), source)] += 1
    assert counts[4:-4].std() < 0.1 * counts.mean()
    assert counts.min() > 0.3 * counts.mean()  # a span cannot reach over the edge


def test_more_spans_than_sentinels_are_never_cut():
    source, target = corrupt_spans(np.arange(100), SENTINELS[:4], np.random.default_rng(0), share=0.5)
    assert sum(token >= 100 for token in source) == 3
    np.testing.assert_array_equal(restore_spans(source, target, SENTINELS), np.arange(100))
