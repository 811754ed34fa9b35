"""Baselines for pairs of texts: similarity features, and the words that the texts share.

There are eight similarity features: the cosine of the TF-IDF vectors; the overlap relative to both, to the first and to
the second text; the ratio of the lengths; and three counts of shared and unshared features. They use character n-grams,
because "plays" and "playing" are similar (Spearman correlation on STS-B: 0.78, with words 0.72). Ridge regression
predicts scores. Logistic regression also sees the words in both texts and those in the second text only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from weft.errors import needs

from .classify import LogisticRegression, one_hot, shares_of
from .vectors import SKLEARN_PURPOSE, WordVectors, pieces_of

_RIDGE = 1.0


@dataclass(frozen=True)
class PairClassifier:
    pieces: WordVectors
    words: WordVectors
    regression: LogisticRegression

    @classmethod
    def fit(cls, firsts: Sequence[str], seconds: Sequence[str], labels: Sequence[int], count: int) -> Self:
        texts = [*firsts, *seconds]
        pieces, words = WordVectors.fit(texts, pieces_of), WordVectors.fit(texts)
        features = _features(pieces, words, firsts, seconds)
        # Stronger regularization than for single texts: the words of a pair are many and weak.
        return cls(pieces, words, LogisticRegression.fit(features, one_hot(labels, count), C=1))

    def probabilities(self, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
        """(pairs, count); 0 for classes that are not in the training data."""
        return shares_of(self.regression.chances(_features(self.pieces, self.words, firsts, seconds)))


@dataclass(frozen=True)
class PairRegressor:
    pieces: WordVectors
    weights: np.ndarray
    bias: float
    lowest: float
    highest: float

    @classmethod
    def fit(cls, firsts: Sequence[str], seconds: Sequence[str], scores: Sequence[float]) -> Self:
        pieces = WordVectors.fit([*firsts, *seconds], pieces_of)
        features, goal = pair_similarity(pieces, firsts, seconds), np.asarray(scores, float)
        centre = features.mean(0)
        centred = features - centre
        gram = centred.T @ centred + _RIDGE * np.eye(features.shape[1])
        weights = np.linalg.solve(gram, centred.T @ (goal - goal.mean()))
        return cls(pieces, weights, float(goal.mean() - centre @ weights), float(goal.min()), float(goal.max()))

    def predict(self, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
        """(pairs,), clipped to the range of the training scores."""
        scores = pair_similarity(self.pieces, firsts, seconds) @ self.weights + self.bias
        return np.clip(scores, self.lowest, self.highest)


def pair_similarity(pieces: WordVectors, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
    """(pairs, 8), scaled to about 0 to 1."""
    first, second = pieces.of(firsts), pieces.of(seconds)
    in_first, in_second = _total(first > 0), _total(second > 0)
    both = _total((first > 0).multiply(second > 0))
    ratios = [
        both / np.maximum(in_first + in_second - both, 1),
        both / np.maximum(in_first, 1),
        both / np.maximum(in_second, 1),
        np.minimum(in_first, in_second) / np.maximum(np.maximum(in_first, in_second), 1),
    ]
    counts = [np.log1p(both), np.log1p(in_first - both), np.log1p(in_second - both)]
    return np.stack([_total(first.multiply(second)), *ratios, *(count / 4 for count in counts)], axis=1)


def pair_vectors(known: Sequence[str], firsts: Sequence[str], seconds: Sequence[str]) -> tuple[Any, Any]:
    """TF-IDF vectors of character n-grams, sparse, of length 1. `known`: texts that tell how rare an n-gram is."""
    pieces = WordVectors.fit(known, pieces_of)
    return pieces.of(firsts), pieces.of(seconds)


def _features(pieces: WordVectors, words: WordVectors, firsts: Sequence[str], seconds: Sequence[str]) -> Any:
    """(pairs, 8 + 2 · features), sparse: similarity, words in both texts, words in the second only."""
    sparse = needs("scipy.sparse", *SKLEARN_PURPOSE)
    first, second = words.of(firsts), words.of(seconds)
    both = second.multiply(first > 0)
    return sparse.hstack([pair_similarity(pieces, firsts, seconds), both, second - both], "csr")


def _total(rows: Any) -> np.ndarray:
    return np.asarray(rows.sum(1), float).ravel()
