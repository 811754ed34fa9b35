"""Attention: from the dot product to many heads."""

from collections.abc import Sequence
from math import exp, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector


def project(W: Matrix, b: Vector, x: Vector) -> Vector:
    return np.array([sum(W[r, c] * x[c] for c in range(len(x))) + b[r] for r in range(len(b))])


def dot_product(q: Vector, k: Vector) -> float:
    return sum(q[c] * k[c] for c in range(len(q)))


def attention_weights(q: Vector, K: Matrix) -> list[float]:
    e = [dot_product(q, k) / sqrt(len(q)) for k in K]
    return [exp(e_j) / sum(exp(e_m) for e_m in e) for e_j in e]


def weighted_sum(alpha: Sequence[float], V: Matrix) -> Vector:
    return sum((alpha[j] * V[j] for j in range(len(V))), start=np.zeros(len(V[0])))


def attention_head(Q: Matrix, K: Matrix, V: Matrix) -> Matrix:
    return np.array([weighted_sum(attention_weights(q, K), V) for q in Q])


def sees(i: int, j: int, window: int) -> bool:
    """Whether position i may look at position j."""
    return i - window <= j <= i


def causal_head(Q: Matrix, K: Matrix, V: Matrix, window: int) -> Matrix:
    visible = [[j for j in range(len(K)) if sees(i, j, window)] for i in range(len(Q))]
    return np.array([weighted_sum(attention_weights(Q[i], K[visible[i]]), V[visible[i]]) for i in range(len(Q))])


def many_heads(Q: list[Matrix], K: list[Matrix], V: list[Matrix], W_O: Matrix, b_O: Vector) -> Matrix:
    heads = [attention_head(Q[h], K[h], V[h]) for h in range(len(Q))]
    return np.array([project(W_O, b_O, z) for z in np.concatenate(heads, axis=1)])


def rms_normalized(q: Vector, g: Vector, epsilon: float) -> Vector:
    return np.array([q[c] / sqrt(sum(x * x for x in q) / len(q) + epsilon) * g[c] for c in range(len(q))])
