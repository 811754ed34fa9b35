"""Texts as sparse vectors of length 1: how often a word is here, against how many texts it is in (TF-IDF).

Words stand alone and in pairs with their neighbours, in lower case. Where words are not written apart, each character
is a word, so Chinese gets its characters and their bigrams from the same rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from weft.errors import needs
from weft.words import letters_of, words_of

SKLEARN_PURPOSE = ("tasks", "to train the classical baseline")  # of scikit-learn, and the extra that brings it
_MOST_FEATURES = 200_000
ENOUGH_TEXTS = 1000  # texts, from which on a feature of one text only is left out


def grams_of(text: str) -> list[str]:
    """Words, and words in pairs."""
    words = words_of(text.lower())
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def pieces_of(text: str) -> list[str]:
    """Three and four letters in a row, so that "walks" is like "walked"; of single characters, pairs too."""
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
            return cut(text) or [""]  # so that no vocabulary is ever empty

        def learn(fewest: int) -> Any:
            vectorizer = sklearn.TfidfVectorizer(
                analyzer=features_of, sublinear_tf=True, max_features=_MOST_FEATURES, min_df=fewest, dtype=np.float32
            )
            return vectorizer.fit(texts)

        try:
            return cls(learn(2 if len(texts) >= ENOUGH_TEXTS else 1))
        except ValueError:  # no feature is in two texts
            return cls(learn(1))

    def of(self, texts: Sequence[str]) -> Any:
        """A sparse matrix (texts, features)."""
        return self.vectorizer.transform(texts or [""])[: len(texts)]  # scikit-learn refuses no texts
