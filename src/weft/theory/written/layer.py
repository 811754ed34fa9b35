"""One layer: residual sums, norms, the feed-forward network, dropout."""

from collections.abc import Callable, Sequence
from math import erf, exp, pi, sqrt, tanh

import numpy as np

from weft.theory.entry import Matrix, Vector


def residual_stream(x_0: Vector, a: Sequence[Vector], f: Sequence[Vector]) -> Vector:
    return x_0 + sum(a_l + f_l for a_l, f_l in zip(a, f, strict=True))


def standardized(x: Vector, g: Vector, b: Vector, epsilon: float) -> Vector:
    W = len(x)
    mu = sum(x) / W
    variance = sum((x[c] - mu) ** 2 for c in range(W)) / W
    return np.array([(x[c] - mu) / sqrt(variance + epsilon) * g[c] + b[c] for c in range(W)])


def root_mean_square(x: Vector, epsilon: float) -> float:
    return sqrt(sum(x_c**2 for x_c in x) / len(x) + epsilon)


def divided_by_size(x: Vector, g: Vector, epsilon: float) -> Vector:
    return np.array([x[c] / root_mean_square(x, epsilon) * g[c] for c in range(len(x))])


def pre_norm_sum(x: Vector, sublayer: Callable[[Vector], Vector], norm: Callable[[Vector], Vector]) -> Vector:
    return x + sublayer(norm(x))


def post_norm_sum(x: Vector, sublayer: Callable[[Vector], Vector], norm: Callable[[Vector], Vector]) -> Vector:
    return norm(x + sublayer(x))


def affine(W: Matrix, b: Vector, x: Vector) -> Vector:
    return np.array([sum(W[r, c] * x[c] for c in range(len(x))) + b[r] for r in range(len(b))])


def two_matrices(
    W_1: Matrix, b_1: Vector, W_2: Matrix, b_2: Vector, x: Vector, phi: Callable[[float], float]
) -> Vector:
    h = np.array([phi(z) for z in affine(W_1, b_1, x)])
    return affine(W_2, b_2, h)


def relu(z: float) -> float:
    return max(0.0, z)


def gelu(z: float) -> float:
    return z * (1 + erf(z / sqrt(2))) / 2


def gelu_by_tanh(z: float) -> float:
    return z * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 * z**3))) / 2


def silu(z: float) -> float:
    return z / (1 + exp(-z))


def gated_network(W_1: Matrix, V: Matrix, W_2: Matrix, x: Vector, phi: Callable[[float], float]) -> Vector:
    h = np.array([phi(z) for z in W_1 @ x]) * (V @ x)
    return W_2 @ h


def dropped_out(x: Vector, u: Vector, p: float) -> Vector:
    """u: for each number of x a random number, evenly spread between 0 and 1."""
    return np.array([x[c] / (1 - p) if u[c] >= p else 0.0 for c in range(len(x))])
