import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft.tokens.keyed_shuffle import KeyedShuffle

sizes, seeds, epochs = st.integers(1, 5000), st.integers(0, 2**32), st.integers(0, 50)


@given(sizes, seeds, epochs)
def test_every_sample_comes_exactly_once_per_epoch(size, seed, epoch):
    order = KeyedShuffle(size, seed, epoch)[np.arange(size)]
    assert sorted(order) == list(range(size))


@given(sizes, seeds, epochs, st.data())
def test_one_position_alone_equals_the_same_position_in_a_batch(size, seed, epoch, data):
    position = data.draw(st.integers(0, size - 1))
    shuffle = KeyedShuffle(size, seed, epoch)
    assert shuffle[position] == shuffle[np.arange(size)][position]


def test_epochs_and_seeds_give_unrelated_orders():
    size = 20_000
    orders = [KeyedShuffle(size, seed, epoch)[np.arange(size)] for seed in range(3) for epoch in range(3)]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).sum() < 10  # two independent permutations agree in one place on average
            assert abs(np.corrcoef(a, b)[0, 1]) < 0.05


def test_a_trillion_samples_cost_no_memory():
    assert 0 <= KeyedShuffle(10**12, seed=0)[123_456_789_012] < 10**12
