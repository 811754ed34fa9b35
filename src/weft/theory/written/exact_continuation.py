"""Exact continuation: random numbers, orders and states as functions of seed and step."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

State = TypeVar("State")
GAMMA = 0x9E3779B97F4A7C15


def mixed_bits(x: int) -> int:
    A, B = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
    x = (x ^ (x // 2**30)) * A % 2**64
    x = (x ^ (x // 2**27)) * B % 2**64
    return x ^ (x // 2**31)


def counted_uniform(k: int, t: int) -> float:
    return mixed_bits((k + (t + 1) * GAMMA) % 2**64) // 2**11 * 2.0**-53


def epoch_keys(s: int, e: int) -> list[int]:
    return [int(k) for k in np.random.SeedSequence((s, e)).generate_state(4, np.uint64)]


def feistel_permuted(x: int, K: Sequence[int], h: int) -> int:
    L, R = x // 2**h, x % 2**h
    for k in K:
        L, R = R, L ^ mixed_bits((R + k) % 2**64) % 2**h
    return L * 2**h + R


def keyed_position(i: int, n: int, K: Sequence[int]) -> int:
    h = next(h for h in range(1, 64) if 4**h >= n)
    x = feistel_permuted(i, K, h)
    while x >= n:
        x = feistel_permuted(x, K, h)
    return x


def numbered_sample(m: int, n: int, s: int) -> int:
    return keyed_position(m % n, n, epoch_keys(s, m // n))


def step_samples(t: int, S: int, n: int, s: int) -> list[int]:
    return [numbered_sample(t * S + i, n, s) for i in range(S)]


def step_seed(s: int, t: int) -> int:
    return int(np.random.SeedSequence([s, t]).generate_state(1, np.uint64)[0]) // 2


def mask_from_bits(c: Sequence[int], p: float) -> list[float]:
    return [(c_i >= round(2**16 * p)) / (1 - p) for c_i in c]


def continued(state: State, step: Callable[[State, int], State], k: int, T: int) -> State:
    for t in range(k, T):
        state = step(state, t)
    return state
