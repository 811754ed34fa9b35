"""Words as vectors: one-hot, bag of words, lookup, skip-gram, cosine, hidden states."""

from collections.abc import Callable, Sequence
from math import exp, log, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector


def indicator(v: int, V: int) -> Vector:
    return np.array([float(u == v) for u in range(V)])


def with_word_pairs(w: list[str]) -> list[str]:
    return w + [f"{w[i]} {w[i + 1]}" for i in range(len(w) - 1)]


def bag_of(features: Sequence[str], vocabulary: list[str]) -> Vector:
    return sum((indicator(vocabulary.index(g), len(vocabulary)) for g in features), start=np.zeros(len(vocabulary)))


def weighted_bag(b: Vector, N: int, N_g: Sequence[int]) -> Vector:
    """N texts, N_g of them with the feature g."""
    x = np.array([(1 + log(b[g])) * (1 + log((1 + N) / (1 + N_g[g]))) if b[g] else 0.0 for g in range(len(b))])
    return x / sqrt(sum(x_g**2 for x_g in x))


def look_up(v: int, E: Matrix, s: float) -> Vector:
    return s * indicator(v, len(E)) @ E


def word_pairs_within(w: Sequence[int], m: int) -> list[tuple[int, int]]:
    """Each word with each of its neighbours at a distance of at most m."""
    return [(w[i], w[j]) for i in range(len(w)) for j in range(len(w)) if i != j and abs(i - j) <= m]


def skip_gram_loss(pairs: Sequence[tuple[int, int]], E: Matrix, U: Matrix) -> float:
    def p(c: int, w: int) -> float:
        return exp(U[c] @ E[w]) / sum(exp(U[v] @ E[w]) for v in range(len(U)))

    return -sum(log(p(c, w)) for w, c in pairs) / len(pairs)


def cosine_of(u: Vector, v: Vector) -> float:
    return sum(u * v) / (sqrt(sum(u * u)) * sqrt(sum(v * v)))


def states_after(layers: Sequence[Callable[[Matrix], Matrix]], X: Matrix) -> list[Matrix]:
    H = [X]
    for f in layers:
        H.append(f(H[-1]))
    return H


def mean_state(H: Matrix) -> Vector:
    return sum((H[i] for i in range(len(H))), start=np.zeros(len(H[0]))) / len(H)
