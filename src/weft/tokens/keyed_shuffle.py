"""A shuffle without state: position -> sample, as a pure function of (seed, epoch).

Training needs a new random order every epoch, over billions of samples, that can be entered anywhere (to resume) and
split among any number of processes (to scale). A stored permutation does none of that cheaply. A keyed bijection does:
a four-round Feistel network permutes [0, 2**k), and walking the cycle until we land below `size` restricts it to
[0, size) (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). The domain is at most four times too large,
so the expected walk is at most four steps.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from weft.splitmix64 import mix64

_FEISTEL_ROUNDS = 4  # Luby & Rackoff 1988: four rounds make a strong pseudo-random permutation.


@dataclass(frozen=True)
class KeyedShuffle:
    """The order of one epoch over `size` samples: `shuffle[i]` is the sample at position `i`; `i` may be an array."""

    size: int
    seed: int
    epoch: int = 0

    def __getitem__(self, position):
        positions = np.atleast_1d(np.asarray(position, dtype=np.uint64))
        samples = shuffle_epochs(self.size, self.seed, np.full(positions.shape, self.epoch), positions)
        return samples if np.ndim(position) else int(samples[0])


def shuffle_epochs(size: int, seed: int, epochs: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """`KeyedShuffle(size, seed, epoch)[position]` for each pair of epoch and position, vectorized."""
    positions = positions.astype(np.uint64)
    if positions.size and positions.max() >= size:
        raise IndexError(f"position {positions.max()} in an epoch of {size} samples")
    different, which = np.unique(epochs, return_inverse=True)
    keys = np.array([_round_keys(seed, epoch) for epoch in different.tolist()], np.uint64).reshape(-1, _FEISTEL_ROUNDS)
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    samples = _permute(positions, keys, which, half_bits)
    while (outside := samples >= size).any():
        samples[outside] = _permute(samples[outside], keys, which[outside], half_bits)
    return samples.astype(np.int64)


def _permute(values: np.ndarray, keys: np.ndarray, which: np.ndarray, half_bits: int) -> np.ndarray:
    """`keys[which]` are the round keys of each value."""
    half, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> half, values & mask
    for number in range(_FEISTEL_ROUNDS):
        left, right = right, left ^ (mix64(right + keys[which, number]) & mask)
    return (left << half) | right


@lru_cache(maxsize=4096)  # generating the keys costs more than using them
def _round_keys(seed: int, epoch: int) -> tuple[np.uint64, ...]:
    return tuple(np.random.SeedSequence((seed, epoch)).generate_state(_FEISTEL_ROUNDS, np.uint64))
