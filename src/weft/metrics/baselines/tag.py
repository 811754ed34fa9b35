"""Baseline for tagging: an averaged perceptron (Collins 2002), from left to right.

    tag = argmax Σ weights of the features that a word has;   the two tags before it are features, too

Where the tag is wrong, its weights lose 1 and those of the right tag gain 1; what is kept is the mean of each weight
over all steps of training. Features are the word and its neighbours, their endings and beginnings, and which kinds of
characters they have. Before neural networks this was the usual tagger (97 % on the Penn Treebank).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

_EPOCHS = 8
_LEAST_SEEN = 2  # times in the training data; rarer features say nothing about new texts
_EDGE = "\0"  # before the first word and after the last


@dataclass(frozen=True)
class PerceptronTagger:
    tags: tuple[str, ...]
    rows: dict[str, int]  # feature -> its row of `weights`; 0: unknown
    weights: (
        np.ndarray
    )  # (features, tags), summed over the steps; row 0 is zero. All numbers are whole, so sums are exact
    before: np.ndarray  # (tags + 1, tags + 1, tags): by the tags of the second and the first word before

    @classmethod
    def fit(cls, words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Self:
        names = tuple(sorted({tag for its in tags for tag in its})) or ("O",)
        numbers = {tag: number for number, tag in enumerate(names)}
        counts = Counter(one for sentence in words for at in _features(sentence) for one in at)
        known = (feature for feature, times in counts.items() if times >= _LEAST_SEEN)
        rows = {feature: number for number, feature in enumerate(known, 1)}
        learner = _Learner(len(rows) + 1, len(names))
        read = [_rows(sentence, rows) for sentence in words]
        gold = [[numbers[tag] for tag in its] for its in tags]
        shuffle = np.random.default_rng(0)
        for _ in range(_EPOCHS):
            mistakes = sum(learner.learn(read[i], gold[i]) for i in shuffle.permutation(len(read)))
            if not mistakes:
                break
        return cls(names, rows, *learner.sums())

    def predict(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        return [self._tag(sentence) for sentence in words]

    def _tag(self, sentence: Sequence[str]) -> list[str]:
        if not len(sentence):
            return []
        scores = self.weights[_rows(sentence, self.rows)].sum(1)
        second = first = len(self.tags)
        found = []
        for row in scores:
            second, first = first, int((row + self.before[second, first]).argmax())
            found.append(self.tags[first])
        return found


class _Learner:
    """Weights, and what they lack to their sums over all steps: what changes at step t was missing t times before."""

    def __init__(self, features: int, tags: int) -> None:
        self.tags, self.steps = tags, 1
        self.weights, self.missing = np.zeros((features, tags), np.int32), np.zeros((features, tags), np.int64)
        self.before = np.zeros((tags + 1, tags + 1, tags), np.int64)
        self.missing_before = np.zeros_like(self.before)

    def learn(self, rows: np.ndarray, gold: Sequence[int]) -> int:
        """The number of mistakes. The tags before a word are the predicted ones, as in use."""
        mistakes = 0
        second = first = self.tags
        for own, right in zip(rows, gold, strict=True):
            scores = self.weights[own].sum(0) + self.before[second, first]
            found = int(scores.argmax())
            if found != right:
                self._move(own, (second, first), right, 1)
                self._move(own, (second, first), found, -1)
                mistakes += 1
            self.steps += 1
            second, first = first, found
        return mistakes

    def _move(self, rows: np.ndarray, tags: tuple[int, int], tag: int, by: int) -> None:
        known = rows[rows > 0]
        self.weights[known, tag] += by
        self.missing[known, tag] += by * self.steps
        self.before[(*tags, tag)] += by
        self.missing_before[(*tags, tag)] += by * self.steps

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Over all steps: the means, times their number."""
        return self.weights * np.int64(self.steps) - self.missing, self.before * self.steps - self.missing_before


def _rows(sentence: Sequence[str], rows: dict[str, int]) -> np.ndarray:
    """(words, features of a word)."""
    return np.asarray([[rows.get(one, 0) for one in at] for at in _features(sentence)], np.int32)


def _features(sentence: Sequence[str]) -> Iterator[list[str]]:
    """As many of each word; equal features of a word occur once."""
    low = [_EDGE, _EDGE, *map(str.lower, sentence), _EDGE, _EDGE]
    looks = [_EDGE, *map(_look, sentence), _EDGE]
    for at, raw in enumerate(sentence):
        second, first, word, after, later = low[at : at + 5]
        yield [
            "b", f"r {raw}", f"w {word}", f"l {looks[at + 1]}",
            *(f"e{size} {word[-size:]}" for size in (1, 2, 3, 4)), *(f"p{size} {word[:size]}" for size in (1, 2, 3)),
            f"-1 {first}", f"-2 {second}", f"+1 {after}", f"+2 {later}",
            f"-e {first[-3:]}", f"+e {after[-3:]}", f"-l {looks[at]}", f"+l {looks[at + 2]}",
            f"-1w {first} {word}", f"w+1 {word} {after}", f"-1+1 {first} {after}",
            f"-2-1 {second} {first}", f"+1+2 {after} {later}",
        ]  # fmt: skip


def _look(word: str) -> str:
    """The kinds of characters: distinguishes IBM, Paris, cat, 1980s, well-known and …"""
    kinds = (word[:1].isupper(), word.isupper(), any(map(str.isdigit, word)), any(map(str.isalpha, word)), "-" in word)
    return "".join("01"[kind] for kind in kinds)
