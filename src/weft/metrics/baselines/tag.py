"""The classical tagger: a word gets the tag it had most often in training; a name, the tags it had as a whole.

A word that was never seen may be known in lower case; if not, words that look like it are asked: those with the same
ending and the same kinds of letters. Every different word has one voice there, since an unknown word is a rare one
("the" says nothing about words in -the). Among entity tags (B-…, I-…, O) an unknown word is outside.
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
    """Which kinds of letters: it tells IBM, Paris, cat, 1980s, well-known and … apart."""
    digits, letters = any(map(str.isdigit, word)), any(map(str.isalpha, word))
    return digits, letters, "-" in word, word[:1].isupper(), word.isupper()


def _ending(word: str) -> Hashable:
    return word[-_SUFFIX_LETTERS:].lower(), _shape(word)


def _most_frequent(seen: Iterable[tuple[Hashable, str, int]]) -> dict[Hashable, str]:
    """Of each key the tag with the most voices; of equals, the first in the alphabet."""
    voices: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
    for key, tag, times in seen:
        voices[key][tag] += times
    return {key: min(tags, key=lambda tag: (-tags[tag], tag)) for key, tags in voices.items()}


@dataclass(frozen=True)
class PhraseLookup:
    """Entities by their whole names: what was called one in most of its places is called one again, the longest first.

    For names of several words, and for characters, which say little alone (Chinese entities of CLUENER: F1 62 instead
    of 5). It knows no name by half, so on texts with new names only, as WNUT-17's, `TagLookup` finds more.
    """

    phrases: dict[tuple[str, ...], tuple[str, ...]]  # and their tags
    lengths: dict[str, list[int]]  # of the phrases that begin with a word, the longest first

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
        for phrase, voices in named.items():
            tagged, most = min(voices.items(), key=lambda voice: (-voice[1], voice[0]))
            if 2 * most > voices.total() + unnamed[phrase]:
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
    """All that may be a phrase and begins here, the longest first."""
    room = len(sentence) - at
    return (sentence[at : at + length] for length in lengths.get(sentence[at], ()) if length <= room)


def _outside(
    sentence: tuple[str, ...], tags: Sequence[str], lengths: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, ...]]:
    """All that may be a phrase and is no part of an entity: York in New York says nothing about York."""
    ends = [0] * len(sentence)  # of the entity that a word is in
    for start, end in _entities(tags):
        ends[start:end] = [end] * (end - start)
    for at, end in enumerate(ends):
        yield from (phrase for phrase in _from(sentence, at, lengths) if at + len(phrase) > end)


def _entities(tags: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where each begins and ends."""
    start = 0
    for at, (tag, following) in enumerate(pairwise([*tags, _OUTSIDE])):
        if following.startswith(_CONTINUES) and tag != _OUTSIDE and tag[2:] == following[2:]:
            continue
        if tag != _OUTSIDE:
            yield start, at + 1
        start = at + 1
