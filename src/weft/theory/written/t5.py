"""T5: cut spans out of a text and write them."""

from collections.abc import Sequence
from itertools import groupby, product
from math import comb, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector
from weft.theory.written.attention import dot_product


def tokens_cut(L: int, r: float) -> int:
    return min(max(round(L * r), 1), L - 1)


def spans_cut(L: int, n: int, mu: float, S: int) -> int:
    return min(max(round(n / mu), 1), n, L - n, S - 1)


def all_cuts(L: int, n: int, m: int) -> list[tuple[int, ...]]:
    """Every way to cut n of L tokens in m spans: 1 where a token is cut."""
    return [c for c in product((0, 1), repeat=L) if sum(c) == n and sum(one for one, _ in groupby(c)) == m]


def chance_of_a_cut(L: int, n: int, m: int) -> float:
    return 1 / (comb(n - 1, m - 1) * comb(L - n + 1, m))


def source_and_target(k: list[list[int]], c: list[list[int]], s: Sequence[int]) -> tuple[list[int], list[int]]:
    m = len(c)
    source = [token for j in range(m) for token in (*k[j], s[j])] + k[m]
    target = [token for j in range(m) for token in (s[j], *c[j])] + [s[m]]
    return source, target


def joined_text(k: list[list[int]], c: list[list[int]]) -> list[int]:
    return [token for j in range(len(c)) for token in (*k[j], *c[j])] + k[len(c)]


def decoder_reads(y: list[int], start: int) -> list[int]:
    return [start, *y[:-1]]


def denoising_loss(log_p: Matrix, y: list[int]) -> float:
    return -sum(log_p[t][y[t]] for t in range(len(y))) / len(y)


def unscaled_score(q: Vector, k: Vector, b: float) -> float:
    return dot_product(q, k) + b


def first_query_weight(G: Matrix, sigma: float, D: int) -> Matrix:
    return np.array(G) * sigma / sqrt(D)


def tied_logits(E: Matrix, h: Vector) -> Vector:
    return np.array([dot_product(E_v, h) / sqrt(len(h)) for E_v in E])


def first_tied_weight(G: Matrix, sigma: float, W: int) -> Matrix:
    return np.array(G) * sigma * sqrt(W)
