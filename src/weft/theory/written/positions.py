"""Positions: how a model learns which token comes where."""

from collections.abc import Sequence
from math import cos, floor, inf, log, pi, sin

import numpy as np

from weft.theory.entry import Matrix, Vector
from weft.theory.written.attention import dot_product


def with_position_vectors(E: Matrix, P: Matrix, t: Sequence[int], o: int) -> Matrix:
    return np.array([E[t[p]] + P[p + o] for p in range(len(t))])


def sinusoid(p: int, c: int, W: int) -> float:
    angle = p / 10_000 ** ((c - c % 2) / W)
    return cos(angle) if c % 2 else sin(angle)


def distance_bucket(d: int, N: int, M: int, both_ways: bool) -> int:
    if both_ways:
        return distance_bucket(-abs(d), N // 2, M, False) + (N // 2 if d > 0 else 0)
    n, e = max(-d, 0), N // 2
    return n if n < e else min(e + floor(log(n / e) / log(M / e) * (N - e)), N - 1)


def biased_score(q: Vector, k: Vector, i: int, j: int, b: Vector, M: int, both_ways: bool) -> float:
    hidden = j > i and not both_ways
    return -inf if hidden else dot_product(q, k) + b[distance_bucket(j - i, len(b), M, both_ways)]


def rotary_angle(p: int, i: int, B: float, D: int) -> float:
    return p * B ** (-2 * i / D)


def rotated_head(x: Vector, p: int, B: float) -> Vector:
    half = len(x) // 2
    angles = [rotary_angle(p, i, B, len(x)) for i in range(half)]
    first = [x[i] * cos(angles[i]) - x[i + half] * sin(angles[i]) for i in range(half)]
    second = [x[i + half] * cos(angles[i]) + x[i] * sin(angles[i]) for i in range(half)]
    return np.array(first + second)


def slowed_frequency(theta: float, s: float, L: int, low: float, high: float) -> float:
    rotations = L * theta / (2 * pi)
    gamma = min(max((rotations - low) / (high - low), 0), 1)
    return (1 - gamma) * theta / s + gamma * theta
