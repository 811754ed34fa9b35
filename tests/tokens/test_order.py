import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RecipeError
from weft.tokens.keyed_shuffle import KeyedShuffle
from weft.tokens.order import ROUND_SIZE, Order, SampleIndex


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
    parts = [order.batch(step, 16, part=part, parts=processes) for part in range(processes)]
    assert [
        place for rank in range(16) for place in parts[rank % processes][rank // processes : rank // processes + 1]
    ] == alone


def test_sources_are_mixed_exactly_by_weight_round_by_round():
    order = Order((50_000, 400, 7_000), (0.9, 0.003, 0.097), 1)
    for round_ in (0, 3):
        counts = Counter(source for source, _, _ in order[np.arange(round_ * ROUND_SIZE, (round_ + 1) * ROUND_SIZE)])
        assert counts == {0: 900, 1: 3, 2: 97}
    seen = [sample for source, _, sample in order[np.arange(20 * ROUND_SIZE)] if source == 2]
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


def one_by_one(order: Order, number: int) -> SampleIndex:
    """The definition: a network of its own for every sample."""
    round_, place = divmod(number, ROUND_SIZE)
    pattern = np.repeat(np.arange(len(order.sizes)), order._shares)
    sources = pattern[KeyedShuffle(ROUND_SIZE, order.seed, round_)[np.arange(ROUND_SIZE)]]
    source = int(sources[place])
    number = round_ * order._shares[source] + int((sources[:place] == source).sum())
    epoch, place = divmod(number, order.sizes[source])
    return SampleIndex(source, epoch, KeyedShuffle(order.sizes[source], order.seed + source, epoch)[place])


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.floats(0.01, 1.0)), min_size=2, max_size=4),
    st.integers(0, 5),
    st.lists(st.integers(0, 10**7), min_size=1, max_size=10),
)
def test_a_batch_of_mixed_sources_is_what_one_sample_at_a_time_gives(sources, seed, numbers):
    order = Order(*zip(*sources, strict=True), seed)
    assert order[numbers] == [one_by_one(order, number) for number in numbers]


def test_the_networks_of_an_epoch_are_set_up_once(monkeypatch):
    """Every set-up draws keys; a batch of two sources needs those of its rounds and epochs, not one per sample."""
    made = []
    draw = np.random.SeedSequence
    monkeypatch.setattr(np.random, "SeedSequence", lambda entropy: made.append(entropy) or draw(entropy))
    Order((50_000, 7_000), (0.6, 0.4), 987_654).batch(0, 512)
    assert len(made) == len(set(made)) <= 3  # a round, and an epoch of each source


def test_the_order_of_earlier_versions_is_kept():
    """Runs that were begun with them go on bit for bit."""
    order = Order((977_000, 31_000), (0.7, 0.3), 3)
    digest = hashlib.sha256(repr([tuple(place) for place in order.batch(1000, 512)]).encode()).hexdigest()
    assert digest[:12] == "508997ec0538"
