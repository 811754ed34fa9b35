"""Retrieval metrics: does a text find the one that belongs to it among all others?

    reciprocal rank   1 / r, r: how many distinct texts are at least as near as the own one, itself included
    recall at k       1 if r ≤ k

Vectors are rows of length 1, dense or sparse.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import needs

from .examples import check_pairs

_RECALLS = (1, 10)
_ROWS = 512  # compared with all candidates at a time


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Each row scaled to length 1; a row of zeros stays."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def stacked(rows: Sequence[Any]) -> Any:
    """(n, width); sparse if the rows are."""
    if isinstance(rows[0], np.ndarray):
        return np.stack(rows)
    return needs("scipy.sparse", "tasks", "for sparse vectors").vstack(rows, "csr")


def row_products(first: Any, second: Any) -> np.ndarray:
    """(n,): u · v of each row."""
    if isinstance(first, np.ndarray):
        return (first * second).sum(1)
    return np.asarray(first.multiply(second).sum(1), float).ravel()


def ranks_of_own(queries: Any, candidates: Any, names: Sequence[str]) -> np.ndarray:
    """(n,): for each query, the rank of its own candidate, the one in the same row. Candidates of equal names count
    once.
    """
    check_pairs(names, np.empty(queries.shape[0]))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    distinct = candidates[[first[name] for name in numbers]]
    own, ranks = np.asarray([numbers[name] for name in names]), []
    for start in range(0, len(names), _ROWS):
        products = queries[start : start + _ROWS] @ distinct.T
        table = products if isinstance(products, np.ndarray) else products.toarray()
        mine = table[np.arange(len(table)), own[start : start + _ROWS]]
        ranks.append((table >= mine[:, None]).sum(1))
    return np.concatenate(ranks)


def retrieval_credits(ranks: np.ndarray) -> dict[str, np.ndarray]:
    """Per query; the means are the metrics."""
    recalls = {f"recall_at_{most}": (ranks <= most).astype(float) for most in _RECALLS}
    return {"mrr": 1 / ranks, **recalls}
