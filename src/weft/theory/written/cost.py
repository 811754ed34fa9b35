"""What a model costs: weights, FLOPs, bytes, and which size a budget is for."""

from collections.abc import Sequence
from math import ceil, exp, floor, log


def layer_weights(d: int, H: int, H_k: int, D: int, m: int, g: int) -> int:
    """g is 2 if the feed-forward layer is gated, else 1."""
    return d * D * (H + 2 * H_k) + H * D * d + (g + 1) * d * m


def gpt2_parameters(V: int, P: int, d: int, layers: int) -> int:
    return (V + P) * d + layers * (12 * d**2 + 13 * d) + 2 * d


def matrix_weights(shapes: Sequence[tuple[int, int]]) -> int:
    return sum(r * c for r, c in shapes)


def reading_flops(n: Sequence[int], R: int, M: int, layers: int, d: int, V: int) -> int:
    return 2 * M * sum(n) + 2 * layers * d * sum(n_j**2 for n_j in n) + 2 * V * d * R


def decoder_flops(t: Sequence[int], s: Sequence[int], layers: int, d: int) -> int:
    """t[j] target tokens, each of which looks at the earlier ones and at s[j] source tokens."""
    products = 2 * layers * (14 * d**2 * sum(t) + 2 * d**2 * sum(s))
    return products + layers * sum(2 * d * t_j**2 + 4 * d * t_j * s_j for t_j, s_j in zip(t, s, strict=True))


def product_flops(r: int, c: int, T: int) -> int:
    return sum(2 for _token in range(T) for _row in range(r) for _column in range(c))  # one times, one plus


def step_flops(shapes: Sequence[tuple[int, int]], T: int) -> int:
    return sum(product_flops(r, c, T) + product_flops(c, r, T) + product_flops(r, T, c) for r, c in shapes)


def bytes_of_weights(Q: Sequence[tuple[int, int, int, int]], others: Sequence[tuple[int, int]]) -> float:
    """Q: bits, rows, columns and groups of each quantized matrix. `others`: numbers of each tensor, bytes of one."""
    return sum(b / 8 * r * c + 4 * r * G for b, r, c, G in Q) + sum(beta * N for N, beta in others)


def trained_bytes(N: int, M: int, beta: int) -> int:
    return beta * (4 * (N - M) + 3 * M)


def remembered_bytes(layers: int, H_k: int, D: int, n: int, beta: int) -> int:
    return 2 * beta * layers * H_k * D * 16 * ceil(n / 16)


def block_rows(V: int, G: int) -> int:
    return max(1, floor(max(2**24, G / 64 // 4) / V))


def repeated_worth(x: float, U: float, R: float) -> float:
    r = max(x / U - 1, 0)
    return min(x, U) + U * R * (1 - exp(-r / R))


def law(M: float, D: float, U: float) -> float:
    return 482 / repeated_worth(M, U / 20, 5.3) ** 0.348 + 2085 / repeated_worth(D, U, 15.4) ** 0.366


def fitting_size(sizes: Sequence[int], D: float) -> int:
    return min(sizes, key=lambda M: abs(log(20 * M / D)))
