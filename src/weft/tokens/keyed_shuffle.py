"""A shuffle without state: position -> sample, as a pure function of (seed, epoch).

Training needs a new random order every epoch, over billions of samples, that can be entered anywhere (to resume) and
split among any number of processes (to scale). A stored permutation does none of that cheaply. A keyed bijection does:
a four-round Feistel network permutes [0, 2**k), and walking the cycle until we land below `size` restricts it to
[0, size) (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). The domain is at most four times too large,
so the expected walk is at most four steps.
"""

from dataclasses import dataclass

import numpy as np

ROUNDS = 4  # Luby & Rackoff 1988: four rounds make a strong pseudo-random permutation.


@dataclass(frozen=True)
class KeyedShuffle:
    """The order of one epoch over `size` samples: `shuffle[i]` is the sample at position `i`, or at each of several."""

    size: int
    seed: int
    epoch: int = 0

    def __getitem__(self, position):
        positions = np.atleast_1d(np.asarray(position, dtype=np.uint64))
        if positions.size and positions.max() >= self.size:
            raise IndexError(f"position {positions.max()} in an epoch of {self.size} samples")
        samples = self._permute(positions)
        while (outside := samples >= self.size).any():
            samples[outside] = self._permute(samples[outside])
        return samples.astype(np.int64) if np.ndim(position) else int(samples[0])

    def _permute(self, values: np.ndarray) -> np.ndarray:
        half = np.uint64(self._half_bits)
        mask = np.uint64((1 << self._half_bits) - 1)
        left, right = values >> half, values & mask
        for round_key in self._round_keys:
            left, right = right, left ^ (mix(right + round_key) & mask)
        return (left << half) | right

    @property
    def _half_bits(self) -> int:
        return max(1, ((self.size - 1).bit_length() + 1) // 2)

    @property
    def _round_keys(self) -> np.ndarray:
        return np.random.SeedSequence((self.seed, self.epoch)).generate_state(ROUNDS, np.uint64)


def mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64: every input bit moves every output bit. Wrap-around is wanted."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
