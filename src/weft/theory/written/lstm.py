"""The LSTM: one state that is carried from token to token."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from weft.theory.entry import Matrix, Vector
from weft.theory.written.attention import project

LstmWeights = tuple[Matrix, Matrix, Vector]  # W, U, b


def gate_inputs(W: Matrix, U: Matrix, b: Vector, x: Vector, h: Vector) -> Vector:
    return project(W, b, x) + project(U, 0 * b, h)


def logistic(z: Vector) -> Vector:
    return 1 / (1 + np.exp(-z))


def next_memory(z: Vector, c: Vector) -> Vector:
    i, f, g, _ = np.split(z, 4)
    return logistic(f) * c + logistic(i) * np.tanh(g)


def next_output(z: Vector, c: Vector) -> Vector:
    _, _, _, o = np.split(z, 4)
    return logistic(o) * np.tanh(c)


def lstm_layer(W: Matrix, U: Matrix, b: Vector, X: Matrix) -> Matrix:
    H, c = [np.zeros(len(U[0]))], np.zeros(len(U[0]))
    for x in X:
        z = gate_inputs(W, U, b, x, H[-1])
        c = next_memory(z, c)
        H.append(next_output(z, c))
    return np.array(H[1:])


def lstm_stack(layers: Sequence[LstmWeights], X: Matrix) -> Matrix:
    for W, U, b in layers:
        X = lstm_layer(W, U, b, X)
    return X


def memory_slope(F: Matrix) -> Vector:
    return np.prod([logistic(f) for f in F], axis=0)


def still_reading(L: Sequence[int], t: int) -> int:
    return sum(L_s > t for L_s in L)


def reading_order(L: Sequence[int]) -> list[tuple[int, int]]:
    """(t, s): step t of sequence s, longest sequence first."""
    longest_first = sorted(range(len(L)), key=lambda s: -L[s])
    return [(t, s) for t in range(max(L)) for s in longest_first if L[s] > t]


def first_cell_weight(u: Matrix, d: int) -> Matrix:
    return (2 * u - 1) / sqrt(d)


def lstm_parameters(layers: int, d: int, V: int) -> int:
    return layers * (8 * d * d + 8 * d) + V * d


def lstm_state(layers: int, d: int) -> int:
    return 2 * layers * d
