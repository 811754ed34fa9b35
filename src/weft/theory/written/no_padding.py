"""No padding: a batch as one run of tokens, and what it saves."""

from collections.abc import Sequence
from math import exp, log

import numpy as np

from weft.theory.entry import Matrix, Vector


def starts_of(n: Sequence[int]) -> list[int]:
    return [sum(n[:j]) for j in range(len(n) + 1)]


def position_in_sequence(t: int, n: Sequence[int]) -> int:
    return t - max(s for s in starts_of(n) if s <= t)


def sequence_of(t: int, n: Sequence[int]) -> int:
    """The number of the sequence that token t of the flat batch belongs to."""
    return sum(s <= t for s in starts_of(n)) - 1


def attend_within(Q: Matrix, K: Matrix, V: Matrix, n: Sequence[int], m: Sequence[int]) -> Matrix:
    """n: lengths of the query sequences, m: of their key sequences."""
    mine = [[u for u in range(len(K)) if sequence_of(u, m) == sequence_of(t, n)] for t in range(len(Q))]
    alpha = [{u: exp(Q[t] @ K[u] / len(Q[t]) ** 0.5) for u in mine[t]} for t in range(len(Q))]
    return np.array([sum(a[u] * V[u] for u in a) / sum(a.values()) for a in alpha])


def mean_of_sequence(h: Matrix, j: int, n: Sequence[int]) -> Vector:
    s = starts_of(n)
    return sum((h[t] for t in range(s[j], s[j + 1])), start=np.zeros(len(h[0]))) / n[j]


def place_if_padded(t: int, n: Sequence[int]) -> int:
    return sequence_of(t, n) * max(n) + position_in_sequence(t, n)


def padded_head(q: Vector, K: Matrix, V: Matrix, length: int) -> Vector:
    """Only the first `length` rows of K and V are real; the rest is padding."""
    m = [float(j < length) for j in range(len(K))]
    alpha = [m[j] * exp(q @ K[j] / len(q) ** 0.5) for j in range(len(K))]
    return sum((alpha[j] * V[j] for j in range(len(K))), start=np.zeros(len(V[0]))) / sum(alpha)


def flat_products(n: Sequence[int], M: int, d: int, w: Sequence[int], c: float) -> float:
    """FLOPs of a forward pass: M weights; layer l, of width d, lets a token see w[l] others, a share c of them."""
    return 2 * M * sum(n) + 4 * d * c * sum(n_j * min(n_j, w_l) for w_l in w for n_j in n)


def cut_by_tokens(n: Sequence[int], most: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    for i in range(len(n)):
        if batches[-1] and sum(n[k] for k in batches[-1]) + n[i] > most:
            batches.append([])
        batches[-1].append(i)
    return batches if n else []


def scored_rows(n: Sequence[int], places: Sequence[Sequence[int]]) -> list[int]:
    return [starts_of(n)[j] + i for j in range(len(n)) for i in places[j]]


def loss_of_scored(h: Matrix, W: Matrix, b: Vector, rows: Sequence[int], y: Sequence[int]) -> float:
    z = [W @ h[t] + b for t in rows]
    return sum(log(sum(np.exp(z_r))) - z_r[y_r] for z_r, y_r in zip(z, y, strict=True)) / len(rows)
