"""Several processes: who computes what, how sums are added, and how one matrix is shared."""

from collections.abc import Sequence
from math import ceil, exp, floor, log, log2, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector


def pieces_of_process(r: int, n: int, p: int) -> list[int]:
    return [i for i in range(p) if floor(r * p / n) <= i < floor((r + 1) * p / n)]


def pieces_in_turn(r: int, n: int, p: int) -> list[int]:
    return [i for i in range(p) if i % n == r]


def mean_of_all(pieces: Sequence[Sequence[float]]) -> float:
    """`pieces`: the losses of the scored tokens of each piece."""
    N = sum(len(piece) for piece in pieces)
    return sum(loss / N for piece in pieces for loss in piece)


def tree_sum(g: Sequence[Vector]) -> Vector:
    if len(g) == 1:
        return g[0]
    m = 2 ** (ceil(log2(len(g))) - 1)
    return tree_sum(g[:m]) + tree_sum(g[m:])


def sent_numbers(sizes: Sequence[int], n: int, k: int) -> int:
    G = sum(16 * ceil(size / 16) for size in sizes)
    return (k + 1) * (n - 1) * 16 * ceil(G / (16 * n))


def rows_of_process(r: int, n: int, R: int) -> list[int]:
    a = ceil(R / n)
    return [i for i in range(R) if r * a <= i < (r + 1) * a]


def rows_of_peer(r: int, n: int, R: Sequence[int]) -> list[int]:
    """Of matrices with R[0], R[1], … rows, one below the other."""
    return [
        sum(R[:k]) + i
        for k in range(len(R))
        for i in range(R[k])
        if floor(r * R[k] / n) <= i < floor((r + 1) * R[k] / n)
    ]


def heads_of_peers(z: Sequence[Sequence[Vector]], W: Matrix, b: Vector) -> Vector:
    """z[r]: the outputs of the heads of peer r, for one token."""
    heads, D = [z_h for z_r in z for z_h in z_r], len(z[0][0])
    return sum((W[:, h * D : (h + 1) * D] @ heads[h] for h in range(len(heads))), start=np.zeros(len(b))) + b


def feedforward_of_peers(x: Vector, W: Matrix, b: Vector, U: Matrix, c: Vector, n: int) -> Vector:
    """W is the way up, U the way down; the activation is ReLU."""
    rows = [rows_of_peer(r, n, [len(W)]) for r in range(n)]
    return sum((U[:, i] @ np.maximum(0, W[i] @ x + b[i]) for i in rows), start=np.zeros(len(c))) + c


def gradient_at_entrance(dx: Sequence[Matrix]) -> Matrix:
    return sum((dx[r] for r in range(len(dx))), start=np.zeros_like(dx[0]))


def look_up_at_peers(E: Matrix, t: int, n: int) -> Vector:
    return sum((E[i] * (i == t) for r in range(n) for i in rows_of_peer(r, n, [len(E)])), start=np.zeros(E.shape[1]))


def loss_of_peers(z: Sequence[Sequence[float]], y: int, epsilon: float) -> float:
    """z[r]: the logits of peer r."""
    largest = max(max(z_r) for z_r in z)
    S = sum(sum(exp(z_i - largest) for z_i in z_r) for z_r in z)
    V, z_all = sum(map(len, z)), [z_i for z_r in z for z_i in z_r]
    return largest + log(S) - (1 - epsilon) * z_all[y] - epsilon / V * sum(z_all)


def logit_gradient_of_peers(z: Sequence[Sequence[float]], y: int, epsilon: float) -> list[float]:
    largest, V = max(max(z_r) for z_r in z), sum(map(len, z))
    S = sum(sum(exp(z_i - largest) for z_i in z_r) for z_r in z)
    return [
        exp(z_i - largest) / S - epsilon / V - (1 - epsilon) * (i == y)
        for i, z_i in enumerate(z_i for z_r in z for z_i in z_r)
    ]


def norm_of_peers(cut: Sequence[Sequence[Vector]], whole: Sequence[Vector]) -> float:
    """cut[r]: the gradients of what only peer r has. `whole`: of what all have."""
    return sqrt(sum(float(x) ** 2 for g in [*[g for parts in cut for g in parts], *whole] for x in g.flatten()))
