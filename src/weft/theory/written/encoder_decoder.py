"""Encoder and decoder: reading one text, writing another."""

from collections.abc import Callable, Sequence
from math import exp, log, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector

MatrixMap = Callable[[Matrix], Matrix]
MatrixMapWithMemory = Callable[[Matrix, Matrix], Matrix]


def read_and_write(
    x: Matrix, y: Matrix, encoder: Sequence[MatrixMap], decoder: Sequence[MatrixMapWithMemory]
) -> tuple[Matrix, Matrix]:
    M = x
    for layer in encoder:
        M = layer(M)
    H = y
    for layer_with_memory in decoder:
        H = layer_with_memory(H, M)
    return M, H


def keys_seen(where: str, i: int, n: int) -> list[int]:
    """By query i, of n keys."""
    return [j for j in range(n) if j <= i] if where == "decoder" else list(range(n))


def source_weights(q: Vector, K: Matrix) -> list[float]:
    e = [sum(q[c] * k[c] for c in range(len(q))) / sqrt(len(q)) for k in K]
    return [exp(e_j) / sum(exp(e_m) for e_m in e) for e_j in e]


def cross_attention_head(Y: Matrix, M: Matrix, W_Q: Matrix, W_K: Matrix, W_V: Matrix) -> Matrix:
    K, V = [W_K @ m for m in M], [W_V @ m for m in M]
    alpha = [source_weights(W_Q @ y, np.array(K)) for y in Y]
    return np.array([sum(alpha[i][j] * V[j] for j in range(len(M))) for i in range(len(Y))])


def decoder_layer(
    y: Matrix,
    M: Matrix,
    self_attention: MatrixMap,
    cross_attention: MatrixMapWithMemory,
    feed_forward: MatrixMap,
    norms: Sequence[MatrixMap],
) -> Matrix:
    u = norms[0](y + self_attention(y))
    r = norms[1](u + cross_attention(u, M))
    return norms[2](r + feed_forward(r))


def next_token_shares(E: Matrix, b: Vector, h: Vector, s: float) -> list[float]:
    z = [s * sum(e[c] * h[c] for c in range(len(h))) + b_v for e, b_v in zip(E, b, strict=True)]
    return [exp(z_v) / sum(exp(z_u) for z_u in z) for z_v in z]


def ended_target(y: Sequence[int], end: int, most: int) -> list[int]:
    return [*y[: most - 1], end]


def decoder_input(y: Sequence[int], start: int) -> list[int]:
    return [start] + [y[t - 1] for t in range(1, len(y))]


def mean_surprise(p: Sequence[float]) -> float:
    """p[t]: the probability of the right token, given the source and the right tokens before it."""
    return -sum(log(p_t) for p_t in p) / len(p)
