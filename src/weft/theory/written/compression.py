"""Compression: distillation, pruning, integers."""

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector


def warm_softmax(z: Sequence[float], T: float) -> list[float]:
    return [exp(z_i / T) / sum(exp(z_j / T) for z_j in z) for z_i in z]


def teacher_divergence(u: Sequence[float], z: Sequence[float], T: float) -> float:
    p, q = warm_softmax(u, T), warm_softmax(z, T)
    return T**2 * sum(p_i * log(p_i / q_i) for p_i, q_i in zip(p, q, strict=True) if p_i > 0)


def divergence_gradient(u: Sequence[float], z: Sequence[float], T: float) -> list[float]:
    p, q = warm_softmax(u, T), warm_softmax(z, T)
    return [T * (q_i - p_i) for p_i, q_i in zip(p, q, strict=True)]


def taught_loss(U: Matrix, Z: Matrix, y: Sequence[int], T: float, share: float) -> float:
    labels = [-log(warm_softmax(Z[n], 1)[y[n]]) for n in range(len(y))]
    soft = [teacher_divergence(U[n], Z[n], T) for n in range(len(y))]
    return sum((1 - share) * soft[n] + share * labels[n] for n in range(len(y))) / len(y)


def matched_layer(m: int, M: int, N: int) -> int:
    return max(1, round(m * N / M))


def hidden_gap(S: Matrix, P: Matrix, H: Matrix) -> float:
    return sum((P @ S[t] - H[t])[c] ** 2 for t in range(len(H)) for c in range(len(H[0]))) / H.size


def mask_information(X: list[Matrix], G: list[Matrix]) -> float:
    return sum(sum((x * g).sum() for x, g in zip(X[s], G[s], strict=True)) ** 2 for s in range(len(X)))


def layer_influence(H: Matrix, K: Matrix) -> float:
    cosines = [h @ k / (sqrt(h @ h) * sqrt(k @ k)) for h, k in zip(H, K, strict=True)]
    return 1 - sum(cosines) / len(cosines)


def without_small_weights(W: Matrix, X: Matrix, keep: float) -> Matrix:
    scores = np.array([[abs(w[j]) * sqrt(sum(x[j] ** 2 for x in X)) for j in range(len(w))] for w in W])
    dropped = round((1 - keep) * len(W[0]))
    return np.array(
        [[w[j] * (sum(s < s[j]) >= dropped) for j in range(len(w))] for w, s in zip(W, scores, strict=True)]
    )


def refitted(X: Matrix, Y: Matrix, W_0: Matrix, ridge: Vector) -> Matrix:
    return W_0 + np.linalg.inv(X.T @ X + np.diag(ridge)) @ X.T @ (Y - X @ W_0)


def to_integer(w: float, s: float, low: int, high: int) -> int:
    return min(max(round(w / s), low), high) if s > 0 else 0


def rounding_error(w: Vector, m: Vector, s: float, low: int, high: int) -> float:
    return sum(m[i] * (w[i] - s * to_integer(w[i], s, low, high)) ** 2 for i in range(len(w)))


def least_error_scale(w: Vector, m: Vector, scales: Sequence[float], low: int, high: int) -> float:
    return min(scales, key=lambda s: rounding_error(w, m, s, low, high))


def integer_product(x: Vector, v: Sequence[int], s: Sequence[float], b: float) -> float:
    s_x, size = max(abs(x)) / 127, len(v) // len(s)
    q = [to_integer(x_i, s_x, -127, 127) for x_i in x]
    groups = [sum(q[i] * v[i] for i in range(g * size, (g + 1) * size)) for g in range(len(s))]
    return s_x * sum(s[g] * groups[g] for g in range(len(s))) + b


def rounded_with_feedback(w: Vector, U: Matrix, s: Sequence[float], low: int, high: int) -> list[int]:
    v = [0] * len(w)
    for j in range(len(w)):
        v[j] = to_integer(w[j], s[j], low, high)
        e = (w[j] - s[j] * v[j]) / U[j, j]
        w = np.array([w[k] - e * U[j, k] if k > j else w[k] for k in range(len(w))])
    return v


def bytes_of_matrix(rows: int, columns: int, bits: int, group: int) -> float:
    return rows * columns * bits / 8 + 4 * rows * columns / group
