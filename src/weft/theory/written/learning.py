"""Learning: the loss of a prediction, its gradient, the update, the rate, clipping, accumulation, when to stop."""

from collections.abc import Sequence
from math import cos, exp, log, pi, sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector
from weft.train.optimizers import NEWTON_SCHULZ


def softmax(z: Sequence[float]) -> list[float]:
    return [exp(z_v) / sum(exp(z_u) for z_u in z) for z_v in z]


def cross_entropy(z: Sequence[float], y: int) -> float:
    return -log(softmax(z)[y])


def smoothed_target(V: int, y: int, epsilon: float) -> list[float]:
    return [(1 - epsilon) * (v == y) + epsilon / V for v in range(V)]


def smoothed_cross_entropy(z: Sequence[float], y: int, epsilon: float) -> float:
    t, p = smoothed_target(len(z), y, epsilon), softmax(z)
    return -sum(t[v] * log(p[v]) for v in range(len(z)))


def loss_gradient(z: Sequence[float], y: int, epsilon: float) -> list[float]:
    t, p = smoothed_target(len(z), y, epsilon), softmax(z)
    return [p[v] - t[v] for v in range(len(z))]


def adamw(
    w: Vector, gradients: Sequence[Vector], rate: float, beta1: float, beta2: float, epsilon: float, decay: float
) -> Vector:
    m = v = np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        w = w - rate * (m_hat / (np.sqrt(v_hat) + epsilon) + decay * w)
    return w


def newton_schulz(G: Matrix, rounds: int = 5) -> Matrix:
    a, b, c = NEWTON_SCHULZ
    X = G / sqrt((G**2).sum())
    for _ in range(rounds):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X


def muon(W: Matrix, gradients: Sequence[Matrix], rate: float, mu: float, decay: float) -> Matrix:
    M = np.zeros_like(W)
    for G in gradients:
        M = mu * M + G
        update = newton_schulz(G + mu * M) * sqrt(max(1, len(W) / len(W[0])))
        W = W - rate * (update + decay * W)
    return W


def warm_up(t: int, warmup: int) -> float:
    return (t + 1) / warmup


def cosine_decay(t: int, begin: int, steps: int, floor: float) -> float:
    return floor + (1 - floor) * (1 + cos(pi * (t - begin) / (steps - begin))) / 2


def linear_decay(t: int, begin: int, steps: int, floor: float) -> float:
    return floor + (1 - floor) * (1 - (t - begin) / (steps - begin))


def clipped(g: Vector, c: float) -> Vector:
    norm = sqrt(sum(x * x for x in g))
    return g * min(1, c / norm)


def accumulated_loss(pieces: Sequence[Sequence[float]]) -> float:
    """`pieces`: the losses of the scored tokens of each piece of a step."""
    N = sum(len(piece) for piece in pieces)
    return sum(sum(piece) / N for piece in pieces)


def stops_after(losses: Sequence[float], patience: int) -> int | None:
    """The number of validations after which training stops."""
    for k in range(patience, len(losses)):
        if min(losses[k - patience + 1 : k + 1]) >= min(losses[: k - patience + 1]):
            return k + 1
    return None
