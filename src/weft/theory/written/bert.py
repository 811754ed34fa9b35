"""BERT: masks, the masked loss, sentence pairs, and the recipe."""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import erf, exp, floor, log, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector

FromBothSides = Callable[[Sequence[int], int], np.ndarray]  # (what is read, i) -> probability of every token at i


def mask_count(n: int, s: float, u: float) -> int:
    return max(1, floor(s * n + u))


def read_instead(
    x: Sequence[int], u: Mapping[int, float], r: Mapping[int, int], mask: int, a: float, b: float
) -> list[int]:
    """The keys of u are the chosen positions M."""
    return [x[i] if i not in u else mask if u[i] < a else r[i] if u[i] < a + b else x[i] for i in range(len(x))]


def cover_masks(pi: Sequence[int], m: int) -> list[set[int]]:
    size = [(len(pi) + m - 1 - j) // m for j in range(m)]
    return [set(pi[sum(size[:j]) : sum(size[: j + 1])]) for j in range(m)]


def masked_loss(p: FromBothSides, x: Sequence[int], read: Sequence[int], M: Collection[int]) -> float:
    return -sum(log(p(read, i)[x[i]]) for i in M) / len(M)


def bert_gelu(a: float) -> float:
    """a times the probability that a normal random number is below a."""
    return a * (1 + erf(a / sqrt(2))) / 2


def bert_norm(t: Vector, g: Vector, b: Vector, epsilon: float) -> Vector:
    mean, variance = sum(t) / len(t), sum((t - sum(t) / len(t)) ** 2) / len(t)
    return (t - mean) / sqrt(variance + epsilon) * g + b


def masked_logits(
    h: Vector, W: Matrix, b: Vector, norm: tuple[Vector, Vector, float], E: Matrix, c: Vector
) -> list[float]:
    t = bert_norm(np.array([bert_gelu(W[r] @ h + b[r]) for r in range(len(b))]), *norm)
    return [E[v] @ t + c[v] for v in range(len(E))]


def pair_label(A: slice, B: slice) -> int:
    """A and B are pieces of the text, from `start` to `stop`."""
    return int(A.stop != B.start)


def pair_input(A: Sequence[int], B: Sequence[int], cls: int, sep: int) -> tuple[list[int], list[int]]:
    x = [cls, *A, sep, *B, sep]
    return x, [int(i >= len(A) + 2) for i in range(len(x))]


def input_vectors(E: Matrix, P: Matrix, G: Matrix, x: Sequence[int], g: Sequence[int]) -> Matrix:
    return np.array([E[x[i]] + P[i] + G[g[i]] for i in range(len(x))])


def pair_loss(z: Sequence[float], y: int) -> float:
    return -log(exp(z[y]) / (exp(z[0]) + exp(z[1])))


def joint_loss(l_masked: Sequence[float], l_pairs: Sequence[float]) -> float:
    return sum(l_masked) / len(l_masked) + sum(l_pairs) / len(l_pairs)


def bert_weights(V: int, P: int, S: int, d: int, layers: int) -> int:
    embeddings, head = (V + P + S + 2) * d, d**2 + 3 * d + V
    return embeddings + layers * (12 * d**2 + 13 * d) + head


def kept_checkpoints(S: Collection[int], t: int, k: int, best: int) -> set[int]:
    earlier = sorted((s for s in S if s != t), reverse=True)
    return {t, *earlier[: k - 1]} | ({best} & set(S))
