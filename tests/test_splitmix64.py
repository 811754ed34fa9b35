import numpy as np

from weft.splitmix64 import GOLDEN_GAMMA, mix64


def test_the_published_sequence_comes_out():
    """The first numbers of SplitMix64 from the state 1234567, as in the reference implementation's test vectors."""
    states = np.array([(1234567 + step * GOLDEN_GAMMA) % 2**64 for step in (1, 2, 3)], np.uint64)
    assert mix64(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
