from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RecipeError
from weft.tokens.order import ROUND, Order


@given(st.integers(1, 300), st.integers(0, 5), st.integers(1, 20))
def test_each_epoch_has_every_sample_once_across_batches(size, seed, batch):
    order = Order((size,), (1.0,), seed)
    steps = -(-3 * size // batch)
    samples = [sample for step in range(steps) for _, _, sample in order.batch(step, batch)]
    for epoch in range(3):
        assert sorted(samples[epoch * size : (epoch + 1) * size]) == list(range(size))


@given(st.integers(0, 10**9), st.integers(1, 8), st.integers(0, 3))
def test_processes_share_the_very_batch_of_one_process(step, processes, seed):
    order = Order((977, 31), (0.7, 0.3), seed)
    alone = order.batch(step, 16)
    parts = [order.batch(step, 16, process=process, processes=processes) for process in range(processes)]
    assert [
        place for rank in range(16) for place in parts[rank % processes][rank // processes : rank // processes + 1]
    ] == alone


def test_sources_are_mixed_exactly_by_weight_round_by_round():
    order = Order((50_000, 400, 7_000), (0.9, 0.003, 0.097), 1)
    for round_ in (0, 3):
        counts = Counter(source for source, _, _ in order[np.arange(round_ * ROUND, (round_ + 1) * ROUND)])
        assert counts == {0: 900, 1: 3, 2: 97}
    seen = [sample for source, _, sample in order[np.arange(20 * ROUND)] if source == 2]
    assert len(seen) == len(set(seen)) == 1940  # no sample comes again before all have come


def test_a_small_source_starts_again_in_a_new_order():
    order = Order((10, 1000), (0.5, 0.5), 0)
    small = [sample for source, _, sample in order[np.arange(100)] if source == 0]
    assert sorted(small[:10]) == sorted(small[10:20]) == list(range(10))
    assert small[:10] != small[10:20]


@pytest.mark.parametrize(("sizes", "weights"), [((), ()), ((0,), (1.0,)), ((5,), (0.0,)), ((5, 5), (1.0,))])
def test_impossible_mixtures_are_refused(sizes, weights):
    with pytest.raises(RecipeError):
        Order(sizes, weights, 0)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20))
def test_places_may_be_asked_in_any_order(numbers):
    order = Order((977, 31), (0.7, 0.3), 0)
    assert order[numbers] == [order[[number]][0] for number in numbers]


def test_a_place_knows_its_sources_epoch():
    order = Order((10,), (1.0,), 0)
    assert [place.epoch for place in order[np.arange(25)]] == [0] * 10 + [1] * 10 + [2] * 5
