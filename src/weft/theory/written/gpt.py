"""GPT: the likelihood, a whole GPT-2, its first weights, its sizes, and tasks without training."""

from collections.abc import Callable, Mapping, Sequence
from math import exp, log2, pi, prod, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector

NextToken = Callable[[Sequence[int]], np.ndarray]  # from the tokens before to the probability of every next token


def likelihood(p: NextToken, x: Sequence[int]) -> float:
    """x_1 … x_{n+1}."""
    return prod(p(x[:t])[x[t]] for t in range(1, len(x)))


def surprise_per_token(p: NextToken, x: Sequence[int]) -> float:
    return -np.log(likelihood(p, x)) / (len(x) - 1)


def gpt_norm(x: Matrix, g: Vector, b: Vector) -> Matrix:
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=1, keepdims=True)) / deviation * g + b


def gpt_gelu(a: Matrix) -> Matrix:
    return a * (1 + np.tanh(sqrt(2 / pi) * (a + 0.044715 * a**3))) / 2


def gpt_head(Q: Matrix, K: Matrix, V: Matrix) -> Matrix:
    """Each token looks at itself and at those before it."""
    e = [np.exp(Q[i] @ K[: i + 1].T / sqrt(len(Q[i]))) for i in range(len(Q))]
    return np.array([e[i] @ V[: i + 1] / e[i].sum() for i in range(len(Q))])


def gpt_attention(x: Matrix, w: Mapping[str, Matrix], H: int) -> Matrix:
    Q, K, V = (np.split(x @ w[f"W_{kind}"].T + w[f"b_{kind}"], H, axis=1) for kind in "QKV")
    heads = [gpt_head(Q[h], K[h], V[h]) for h in range(H)]
    return np.concatenate(heads, axis=1) @ w["W_O"].T + w["b_O"]


def gpt_layer(x: Matrix, w: Mapping[str, Matrix], H: int) -> Matrix:
    x = x + gpt_attention(gpt_norm(x, w["g_1"], w["s_1"]), w, H)
    inner = gpt_gelu(gpt_norm(x, w["g_2"], w["s_2"]) @ w["W_1"].T + w["b_1"])
    return x + inner @ w["W_2"].T + w["b_2"]


def gpt_logits(t: Sequence[int], tables: Sequence[Matrix], layers: Sequence[Mapping[str, Matrix]], H: int) -> Matrix:
    E, P, g, s = tables
    x = E[list(t)] + P[: len(t)]
    for w in layers:
        x = gpt_layer(x, w, H)
    return gpt_norm(x, g, s) @ E.T


def first_deviation(sigma: float, layers: int, writes: bool) -> float:
    """`writes`: the matrix writes to the residual stream."""
    return sigma / sqrt(2 * layers) if writes else sigma


def heads_fit(d: int, H: int, D: int) -> bool:
    return d == H * D


def rule_for_length(C: float, usual: float) -> int:
    return 2 ** min(max(round(log2(256 * (C / usual) ** (1 / 3))), 6), 10)


def rule_for_batch(C: float, n: int) -> int:
    return n * max(8, round(0.146 * C**0.3271 / n))


def option_shares(log_p: Sequence[Sequence[float]], size: Sequence[int]) -> list[float]:
    """log_p: of each token of each option."""
    merit = [sum(log_p[a]) / size[a] for a in range(len(log_p))]
    return [exp(m) / sum(exp(other) for other in merit) for m in merit]
