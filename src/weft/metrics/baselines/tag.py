"""Baselines for tagging: the most frequent tag of a word in training, or the tags of a whole entity.

An unknown word is looked up in lower case, then by its ending and shape, then by its shape. Each different training
word counts once there, because unknown words are rare words ("the" says nothing about words in -the). Among entity
tags (B-…, I-…, O) an unknown word is tagged O.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

_SUFFIX_LETTERS = 3
_OUTSIDE = "O"
_CONTINUES = ("I-", "E-", "L-")
_INSIDE = ("B-", "S-", "U-", *_CONTINUES)  # IOB, BIOES and BILOU


@dataclass(frozen=True)
class TagLookup:
    words: dict[Hashable, str]
    lowercase: dict[Hashable, str]
    endings: dict[Hashable, str]
    shapes: dict[Hashable, str]
    otherwise: str

    @classmethod
    def fit(cls, words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Self:
        seen: Counter[tuple[str, str]] = Counter()
        for sentence, its in zip(words, tags, strict=True):
            seen.update(zip(sentence, its, strict=True))
        known = _most_frequent((word, tag, times) for (word, tag), times in seen.items())
        lowercase = _most_frequent((word.lower(), tag, times) for (word, tag), times in seen.items())
        if all(tag == _OUTSIDE or tag.startswith(_INSIDE) for _, tag in seen):
            return cls(known, lowercase, {}, {}, _OUTSIDE)
        endings = _most_frequent((_ending(word), tag, 1) for word, tag in seen)
        shapes = _most_frequent((_shape(word), tag, 1) for word, tag in seen)
        overall = _most_frequent((None, tag, times) for (_, tag), times in seen.items())
        return cls(known, lowercase, endings, shapes, overall[None])

    def predict(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[self._tag(word) for word in sentence] for sentence in words]

    def _tag(self, word: str) -> str:
        return (
            self.words.get(word)
            or self.lowercase.get(word.lower())
            or self.endings.get(_ending(word))
            or self.shapes.get(_shape(word))
            or self.otherwise
        )


def _shape(word: str) -> Hashable:
    """The kinds of characters: distinguishes IBM, Paris, cat, 1980s, well-known and …"""
    digits, letters = any(map(str.isdigit, word)), any(map(str.isalpha, word))
    return digits, letters, "-" in word, word[:1].isupper(), word.isupper()


def _ending(word: str) -> Hashable:
    return word[-_SUFFIX_LETTERS:].lower(), _shape(word)


def _most_frequent(seen: Iterable[tuple[Hashable, str, int]]) -> dict[Hashable, str]:
    """The most frequent tag of each key; on a tie, the first in alphabetical order."""
    votes: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
    for key, tag, times in seen:
        votes[key][tag] += times
    return {key: min(tags, key=lambda tag: (-tags[tag], tag)) for key, tags in votes.items()}


@dataclass(frozen=True)
class PhraseLookup:
    """Tags phrases that were an entity in most of their training occurrences, the longest first.

    Good for entities of several words, and for Chinese characters, which say little alone (CLUENER: F1 62, with
    `TagLookup` 5). It finds no unseen entity, so for mostly new names (WNUT-17) `TagLookup` is better.
    """

    phrases: dict[tuple[str, ...], tuple[str, ...]]  # phrase -> its tags
    lengths: dict[str, list[int]]  # first word -> lengths of its phrases, longest first

    @classmethod
    def fit(cls, words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Self:
        sentences = [tuple(map(str.lower, sentence)) for sentence in words]
        named: defaultdict[tuple[str, ...], Counter[tuple[str, ...]]] = defaultdict(Counter)
        for sentence, its in zip(sentences, tags, strict=True):
            for start, end in _entities(its):
                named[sentence[start:end]][tuple(its[start:end])] += 1
        starts: defaultdict[str, set[int]] = defaultdict(set)
        for phrase in named:
            starts[phrase[0]].add(len(phrase))
        lengths = {word: sorted(its, reverse=True) for word, its in starts.items()}
        unnamed: Counter[tuple[str, ...]] = Counter()
        for sentence, its in zip(sentences, tags, strict=True):
            unnamed.update(phrase for phrase in _outside(sentence, its, lengths) if phrase in named)
        phrases = {}
        for phrase, votes in named.items():
            tagged, most = min(votes.items(), key=lambda vote: (-vote[1], vote[0]))
            if 2 * most > votes.total() + unnamed[phrase]:
                phrases[phrase] = tagged
        return cls(phrases, lengths)

    def predict(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        return [self._tags(tuple(map(str.lower, sentence))) for sentence in words]

    def _tags(self, sentence: tuple[str, ...]) -> list[str]:
        tags: list[str] = []
        while len(tags) < len(sentence):
            begun = _from(sentence, len(tags), self.lengths)
            tags += next((self.phrases[phrase] for phrase in begun if phrase in self.phrases), (_OUTSIDE,))
        return tags


def _from(sentence: tuple[str, ...], at: int, lengths: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, ...]]:
    """The candidate phrases that begin at `at`, longest first."""
    room = len(sentence) - at
    return (sentence[at : at + length] for length in lengths.get(sentence[at], ()) if length <= room)


def _outside(
    sentence: tuple[str, ...], tags: Sequence[str], lengths: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, ...]]:
    """The candidate phrases that are not part of an entity: York in New York says nothing about York."""
    ends = [0] * len(sentence)  # end of the entity that contains the word
    for start, end in _entities(tags):
        ends[start:end] = [end] * (end - start)
    for at, end in enumerate(ends):
        yield from (phrase for phrase in _from(sentence, at, lengths) if at + len(phrase) > end)


def _entities(tags: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The start and end of each entity."""
    start = 0
    for at, (tag, following) in enumerate(pairwise([*tags, _OUTSIDE])):
        if following.startswith(_CONTINUES) and tag != _OUTSIDE and tag[2:] == following[2:]:
            continue
        if tag != _OUTSIDE:
            yield start, at + 1
        start = at + 1
