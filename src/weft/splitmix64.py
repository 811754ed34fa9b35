"""SplitMix64's constants and finalizer (Steele, Lea & Flood 2014): cheap 64-bit mixing for hashes and keyed orders."""

import numpy as np
from numpy.typing import NDArray

GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio, odd


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection on 64-bit numbers: every input bit changes every output bit. Multiplications wrap around."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
