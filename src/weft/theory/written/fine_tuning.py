"""Fine-tuning: pre-trained weights, heads, tags in a row, answers, written texts, adapters."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import ceil, exp, log

import numpy as np

from weft.theory.entry import Matrix, Vector


def start_from(pretrained: Mapping[str, Matrix], fresh: Mapping[str, Matrix]) -> dict[str, Matrix]:
    def fits(i: str) -> bool:
        return i in pretrained and pretrained[i].shape == fresh[i].shape

    return {i: pretrained[i] if fits(i) else fresh[i] for i in fresh}


def head_scores_of(h: Vector, W: Matrix, b: Vector, D: Matrix, a: Vector, f: Callable[[float], float]) -> Vector:
    dense = np.array([f(sum(D[r, c] * h[c] for c in range(len(h))) + a[r]) for r in range(len(a))])
    return np.array([sum(W[r, c] * dense[c] for c in range(len(dense))) + b[r] for r in range(len(b))])


def class_shares(z: Sequence[float] | Vector) -> list[float]:
    return [exp(z_c) / sum(exp(z_a) for z_a in z) for z_c in z]


def class_loss(z: Matrix, y: Sequence[int], w: Sequence[float]) -> float:
    return -sum(w[y[i]] * log(class_shares(z[i])[y[i]]) for i in range(len(y))) / len(y)


def class_weight(c: str, y: Sequence[str], L: int) -> float:
    return len(y) / (L * sum(y_i == c for y_i in y))


def maximum_entropy(f: Vector, lam: Matrix, b: Vector) -> list[float]:
    """lam[c, k]: the weight of feature k for class c."""
    return class_shares([sum(lam[c, k] * f[k] for k in range(len(f))) + b[c] for c in range(len(b))])


def tagging_score(z: Matrix, y: Sequence[int], T: Matrix, s: Vector, e: Vector) -> float:
    inside = sum(z[t, y[t]] for t in range(len(y))) + sum(T[y[t - 1], y[t]] for t in range(1, len(y)))
    return s[y[0]] + inside + e[y[-1]]


def all_taggings(n: int, L: int) -> list[tuple[int, ...]]:
    return list(product(range(L), repeat=n))


def crf_loss(z: Matrix, y: Sequence[int], T: Matrix, s: Vector, e: Vector) -> float:
    Z = sum(exp(tagging_score(z, other, T, s, e)) for other in all_taggings(*z.shape))
    return log(Z) - tagging_score(z, y, T, s, e)


def forward_sum(z: Matrix, T: Matrix, s: Vector, e: Vector) -> float:
    n, L = z.shape
    a = [s[j] + z[0, j] for j in range(L)]
    for t in range(1, n):
        a = [log(sum(exp(a[i] + T[i, j]) for i in range(L))) + z[t, j] for j in range(L)]
    return log(sum(exp(a[j] + e[j]) for j in range(L)))


def best_tagging(z: Matrix, T: Matrix, s: Vector, e: Vector) -> tuple[int, ...]:
    return max(all_taggings(*z.shape), key=lambda y: tagging_score(z, y, T, s, e))


def may_follow(a: str, b: str) -> bool:
    return not b.startswith("I-") or a in (f"B-{b[2:]}", b)


def spans_of(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """(first word, word after the last, type). An I- that nothing of its type precedes begins an entity, too."""
    pairs = [(tag[0], tag[2:]) for tag in tags]
    n = len(tags)
    begins = [
        i for i in range(n) if tags[i] != "O" and (pairs[i][0] == "B" or i == 0 or pairs[i - 1][1] != pairs[i][1])
    ]
    ends = [next((j for j in range(i + 1, n) if j in begins or tags[j] != f"I-{pairs[i][1]}"), n) for i in begins]
    return {(i, j, pairs[i][1]) for i, j in zip(begins, ends, strict=True)}


def entity_f1(G: Sequence[set[tuple[int, int, str]]], P: Sequence[set[tuple[int, int, str]]]) -> float:
    both = sum(len(G[s]) + len(P[s]) for s in range(len(G)))
    return 2 * sum(len(G[s] & P[s]) for s in range(len(G))) / both if both else 0.0


def span_loss(z: Matrix, b: int, e: int) -> float:
    """z[i]: the scores of token i as the first and as the last one of the answer."""
    return -(log(class_shares(z[:, 0])[b]) + log(class_shares(z[:, 1])[e])) / 2


def best_span(z: Matrix, M: int) -> tuple[int, int]:
    n = len(z)
    return max(((i, j) for i in range(n) for j in range(i, min(i + M, n))), key=lambda ij: z[ij[0], 0] + z[ij[1], 1])


def written_loss(p: Callable[[Sequence[int]], Vector], x: Sequence[int], y: Sequence[int]) -> float:
    """p: from the tokens before to the probability of every next token."""
    return -sum(log(p([*x, *y[:t]])[y[t]]) for t in range(len(y))) / len(y)


def command_loss(
    intents: Sequence[Vector], a: Sequence[int], slots: Sequence[Sequence[Vector]], y: Sequence[Sequence[int]]
) -> float:
    """Of N commands, with their words' slots."""
    right = [log(class_shares(slots[i][t])[y[i][t]]) for i in range(len(a)) for t in range(len(y[i]))]
    return -sum(log(class_shares(intents[i])[a[i]]) for i in range(len(a))) / len(a) - sum(right) / len(right)


def held_out(N: int) -> int:
    return min(2000, max(1, round(N / 10)))


def steps_in(E: float, N: int, B: int) -> int:
    return max(1, ceil(E * N / B))


def adapted(x: Vector, W: Matrix, b: Vector, A: Matrix, B: Matrix, s: float) -> Vector:
    return W @ x + b + s * (B @ (A @ x))
