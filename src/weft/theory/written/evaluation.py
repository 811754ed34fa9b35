"""Evaluation: metrics of classes and texts, intervals, the classical baseline."""

from collections import Counter
from collections.abc import Sequence
from math import exp, log, prod, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector


def confusion_of(y: Sequence[int], y_hat: Sequence[int], L: int) -> Matrix:
    """How often the gold label is a and the predicted one b."""
    return np.array([[list(zip(y, y_hat, strict=True)).count((a, b)) for b in range(L)] for a in range(L)])


def accuracy_of(C: Matrix) -> float:
    return sum(C[c, c] for c in range(len(C))) / sum(C[a, b] for a in range(len(C)) for b in range(len(C)))


def share(a: float, b: float) -> float:
    return a / b if b else 0.0


def class_precision(C: Matrix, c: int) -> float:
    return share(C[c, c], sum(C[a, c] for a in range(len(C))))


def recall_of(C: Matrix, c: int) -> float:
    return share(C[c, c], sum(C[c, b] for b in range(len(C))))


def f1_of(C: Matrix, c: int) -> float:
    P, R = class_precision(C, c), recall_of(C, c)
    return share(2 * P * R, P + R)


def macro_f1(C: Matrix) -> float:
    S = [c for c in range(len(C)) if any(C[c, a] or C[a, c] for a in range(len(C)))]
    return sum(f1_of(C, c) for c in S) / len(S)


def weighted_f1(C: Matrix) -> float:
    return sum(sum(C[c]) / C.sum() * f1_of(C, c) for c in range(len(C)))


def matthews(C: Matrix) -> float:
    N, L = C.sum(), range(len(C))
    g, p = [sum(C[c]) for c in L], [sum(C[:, c]) for c in L]
    top = N * sum(C[c, c] for c in L) - sum(g[c] * p[c] for c in L)
    return share(top, sqrt(N**2 - sum(g[c] ** 2 for c in L)) * sqrt(N**2 - sum(p[c] ** 2 for c in L)))


def calibration_error(p: Matrix, y: Sequence[int], bins: int) -> float:
    ECE = 0.0
    for b in range(bins):
        B = [i for i in range(len(y)) if b / bins < max(p[i]) <= (b + 1) / bins]
        ECE += abs(sum((p[i].argmax() == y[i]) - max(p[i]) for i in B)) / len(y)
    return ECE


def brier_score(p: Matrix, y: Sequence[int]) -> float:
    return sum((p[i, c] - (c == y[i])) ** 2 for i in range(len(y)) for c in range(len(p[0]))) / len(y)


def wilson(k: int, N: int, z: float) -> tuple[float, float]:
    p = k / N
    half = z * sqrt(p * (1 - p) / N + z**2 / (4 * N**2))
    return (p + z**2 / (2 * N) - half) / (1 + z**2 / N), (p + z**2 / (2 * N) + half) / (1 + z**2 / N)


def resampled_means(x: Sequence[float], draws: Sequence[Sequence[int]]) -> list[float]:
    """`draws`: N numbers from 0 to N − 1 per round, drawn with replacement."""
    return [sum(x[i] for i in draw) / len(x) for draw in draws]


def middle_of(m: Sequence[float], level: float) -> tuple[float, float]:
    def quantile(q: float) -> float:
        """Between two values, on the line from one to the other."""
        i, part = divmod(q * (len(m) - 1), 1)
        return sorted(m)[int(i)] * (1 - part) + sorted([*m, max(m)])[int(i) + 1] * part

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def differences(A: Sequence[float], B: Sequence[float]) -> list[float]:
    return [A[r] - B[r] for r in range(len(A))]


def ngrams_of(w: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1))


def clipped_matches(c: Sequence[str], r: Sequence[str], n: int) -> int:
    return sum(min(times, ngrams_of(r, n)[gram]) for gram, times in ngrams_of(c, n).items())


def modified_precisions(pairs: Sequence[tuple[list[str], list[str]]]) -> list[float]:
    """p_1 … p_4 of all pairs (translation, reference). The first order without a match counts ½, the next ¼ …"""
    m = [sum(clipped_matches(c, r, n) for c, r in pairs) for n in range(1, 5)]
    a = [sum(max(len(c) - n + 1, 0) for c, _ in pairs) for n in range(1, 5)]
    return [share(m[n] or 0.5 ** m[: n + 1].count(0) * any(m), a[n]) for n in range(4)]


def bleu_of(pairs: Sequence[tuple[list[str], list[str]]]) -> float:
    p = modified_precisions(pairs)
    c, r = sum(len(one) for one, _ in pairs), sum(len(one) for _, one in pairs)
    return 100 * min(1, exp(1 - r / c)) * exp(sum(log(p_n) / 4 for p_n in p)) if prod(p) else 0.0


def common_length(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            equal = a[i - 1] == b[j - 1]
            table[i, j] = table[i - 1, j - 1] + 1 if equal else max(table[i - 1, j], table[i, j - 1])
    return int(table[-1, -1])


def rouge_n(a: Sequence[str], b: Sequence[str], n: int) -> float:
    return share(2 * clipped_matches(a, b, n), max(len(a) - n + 1, 0) + max(len(b) - n + 1, 0))


def rouge_l(a: Sequence[str], b: Sequence[str]) -> float:
    return share(2 * common_length(a, b), len(a) + len(b))


def perplexity_and_bits(log_p: Sequence[float], size: int) -> tuple[float, float]:
    return exp(-sum(log_p) / len(log_p)), -sum(log_p) / log(2) / size


def chance_of(w: Vector, b: float, x: Vector) -> float:
    return 1 / (1 + exp(-(sum(w[f] * x[f] for f in range(len(x))) + b)))


def one_against_rest(W: Matrix, b: Vector, x: Vector) -> list[float]:
    """W has a column per class."""
    s = [chance_of(W[:, c], b[c], x) for c in range(len(b))]
    return [s_c / sum(s) for s_c in s]
