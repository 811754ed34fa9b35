"""Baselines for summaries, translations and replies that copy existing text.

`LeadSentences` copies the beginning of the source, which is hard to beat for news, or all of it. `NearestNeighbour`
copies the target of the most similar training source.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from weft.tokens.shards import split_sentences
from weft.words import words_of

from .vectors import WordVectors

_MOST_SENTENCES, _EVERYTHING = 10, 10**9
_SAMPLE_SOURCES = 2000  # to choose the number of sentences
_SPEAKER = re.compile(r"[^\s:][^:\n]{0,30}:\s")  # "Anna: Hi!"
_COSINES_AT_ONCE = 4_000_000  # 16 MB


@dataclass(frozen=True)
class LeadSentences:
    """The first sentences of a source; the first lines if it has several lines, as a dialogue has."""

    count: int

    @classmethod
    def fit(cls, sources: Sequence[str], targets: Sequence[str]) -> Self:
        """Chooses the number of sentences with the largest word overlap with the targets; on a tie, the smallest."""
        sources, targets = sources[:_SAMPLE_SOURCES], targets[:_SAMPLE_SOURCES]

        def agreement(count: int) -> float:
            leads = cls(count).predict(sources)
            return sum(_overlap(lead, target) for lead, target in zip(leads, targets, strict=True))

        return cls(max((*range(1, _MOST_SENTENCES + 1), _EVERYTHING), key=agreement))

    @property
    def name(self) -> str:
        if self.count == _EVERYTHING:
            return "the source itself"
        return "the first sentence" if self.count == 1 else f"the first {self.count} sentences"

    def predict(self, sources: Sequence[str]) -> list[str]:
        return [_lead(source.strip(), self.count) for source in sources]


@dataclass(frozen=True)
class NearestNeighbour:
    vectors: WordVectors
    sources: Any  # (features, sources), sparse
    targets: list[str]

    @classmethod
    def fit(cls, sources: Sequence[str], targets: Sequence[str]) -> Self:
        vectors = WordVectors.fit(sources)
        return cls(vectors, vectors.of(sources).T.tocsr(), list(targets))

    def predict(self, sources: Sequence[str]) -> list[str]:
        """The target of the training source with the highest cosine; on a tie, the first."""
        found: list[str] = []
        rows = max(_COSINES_AT_ONCE // len(self.targets), 1)
        for start in range(0, len(sources), rows):
            cosines = (self.vectors.of(sources[start : start + rows]) @ self.sources).toarray()
            found += (self.targets[place] for place in np.argmax(cosines, 1))
        return found


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, which do not cross lines; of a dialogue the lines. Joined, they are the text. None is
    blank.
    """
    lines = text.splitlines(keepends=True)
    filled = [line for line in lines if line.strip()]
    is_dialogue = len(filled) > 1 and sum(_SPEAKER.match(line) is not None for line in filled) > len(filled) / 2
    parts = lines if is_dialogue else [part for line in lines for part in split_sentences(line)]
    begins = [number for number, part in enumerate(parts) if part.strip()]
    starts = [0, *begins[1:]]
    return ["".join(parts[a:b]) for a, b in pairwise([*starts, len(parts)])] if parts else [text]


def _lead(source: str, count: int) -> str:
    return "".join(sentences_of(source)[:count]).strip()


def _overlap(text: str, target: str) -> float:
    """F1 of the words, with multiplicity."""
    ours, theirs = Counter(words_of(text.lower())), Counter(words_of(target.lower()))
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 1.0
