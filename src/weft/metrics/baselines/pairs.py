"""The classical judges of two texts: how alike they are, and which words they share.

Likeness is eight numbers: the cosine of the TF-IDF vectors; what is shared, as a share of all and of either text; the
ratio of the lengths; how much is shared and how much is not. They count pieces of words, not words, for "plays" and
"playing" are alike (on STS-B a rank correlation of 0.78 instead of 0.72). Ridge regression makes a score of them.
Logistic regression, to classify, sees as well which words are in both texts and which in the second alone.
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
        # Words of a pair are many and say little: smaller weights than for a single text.
        return cls(pieces, words, LogisticRegression.fit(features, one_hot(labels, count), C=1))

    def probabilities(self, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
        """(pairs, count); a class that never came in training has 0."""
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
        """(pairs,), within the range of the scores in training."""
        scores = pair_similarity(self.pieces, firsts, seconds) @ self.weights + self.bias
        return np.clip(scores, self.lowest, self.highest)


def pair_similarity(pieces: WordVectors, firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
    """(pairs, 8), all of them about between 0 and 1."""
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


def _features(pieces: WordVectors, words: WordVectors, firsts: Sequence[str], seconds: Sequence[str]) -> Any:
    """(pairs, 8 + features + features), sparse: how alike, the words in both, the words in the second alone."""
    sparse = needs("scipy.sparse", *SKLEARN_PURPOSE)
    first, second = words.of(firsts), words.of(seconds)
    both = second.multiply(first > 0)
    return sparse.hstack([pair_similarity(pieces, firsts, seconds), both, second - both], "csr")


def _total(rows: Any) -> np.ndarray:
    return np.asarray(rows.sum(1), float).ravel()
