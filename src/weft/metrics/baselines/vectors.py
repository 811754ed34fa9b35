"""Texts as sparse TF-IDF vectors of unit length.

Features are words and word bigrams in lower case. In scripts without spaces each character is a word, so Chinese gets
characters and character bigrams.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from weft.errors import needs
from weft.words import letters_of, words_of

SKLEARN_PURPOSE = ("tasks", "to train the classical baseline")  # extra that installs scikit-learn, and what for
_MOST_FEATURES = 200_000
ENOUGH_TEXTS = 1000  # from here, features that occur in one text only are dropped


def grams_of(text: str) -> list[str]:
    """Words and word bigrams."""
    words = words_of(text.lower())
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def pieces_of(text: str) -> list[str]:
    """Character 3- and 4-grams, so that "walks" is similar to "walked"; and bigrams of single-character words."""
    words = words_of(text.lower())
    pieces = [f" {first}{second} " for first, second in pairwise(words) if letters_of(first) == letters_of(second) == 1]
    for word in words:
        framed = f" {word} "
        pieces += [framed[at : at + size] for size in (3, 4) for at in range(max(len(framed) - size + 1, size == 3))]
    return pieces


@dataclass(frozen=True)
class WordVectors:
    vectorizer: Any  # scikit-learn's

    @classmethod
    def fit(cls, texts: Sequence[str], cut: Callable[[str], list[str]] = grams_of) -> Self:
        sklearn = needs("sklearn.feature_extraction.text", *SKLEARN_PURPOSE)

        def features_of(text: str) -> list[str]:
            return cut(text) or [""]  # so that the vocabulary is never empty

        def learn(fewest: int) -> Any:
            vectorizer = sklearn.TfidfVectorizer(
                analyzer=features_of, sublinear_tf=True, max_features=_MOST_FEATURES, min_df=fewest, dtype=np.float32
            )
            return vectorizer.fit(texts)

        try:
            return cls(learn(2 if len(texts) >= ENOUGH_TEXTS else 1))
        except ValueError:  # no feature occurs in two texts
            return cls(learn(1))

    def of(self, texts: Sequence[str]) -> Any:
        """A sparse matrix (texts, features)."""
        return self.vectorizer.transform(texts or [""])[: len(texts)]  # scikit-learn refuses an empty list
