"""Test sets kept out of the corpus: a model that has read the answers shows nothing by knowing them.

As in Brown et al. 2020 (appendix C): a document that shares an n-gram of 13 words with a text of the test sets (26
characters of Chinese, 52 letters of Thai, or a mixture) loses it, with 200 characters on each side, and falls into
pieces there. Pieces of less than 200 characters go, and so does a document that would be in more than ten. What more
than ten documents share is no leak but a commonplace (a licence, a verse), and stays. A test text that is shorter than
an n-gram is looked for as a whole, from eight words on; what is shorter still would be found everywhere.

The first pass notes where n-grams of the tests are, `find_common_ngrams` counts the documents that stay, and the second
pass cuts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.corpus.clean import Cleaning, clean
from weft.corpus.ngrams import NGrams, Numbers, Places, Sizes
from weft.words import places_of_words, weight_of, words_of

TEST_NGRAMS_FILE, _TEST_LENGTHS_FILE, COMMON_NGRAMS_FILE = (
    "test-ngrams.npy",
    "test-lengths.npy",
    "common-ngrams.npy",
)  # in the folder of the work
HITS_FILE = "hits.npy"  # in the folder of a piece
HIT_DTYPE = np.dtype([("row", np.int64), ("ngram", np.int64), ("begin", np.int64), ("end", np.int64)])
_MOST_MOVED = 30  # characters that a cut may move outwards, to stand between two words

Hits = NDArray[np.void]  # of HIT; places in characters
TextRange = tuple[int, int]


def _sizes_of(words: int) -> Sizes:
    return words, 2 * words, 4 * words


@dataclass(frozen=True)
class LeakIndex:
    """What to look for: sorted numbers of n-grams, and the lengths, in words, of those that are whole texts."""

    numbers: Numbers
    lengths: NDArray[np.int64]
    words: int
    texts: int = 0
    whole: int = 0  # texts that are looked for as a whole
    short: int = 0  # texts that are too short to be looked for

    @classmethod
    def of(cls, texts: Iterable[str], words: int, least: int, cleaning: Cleaning) -> "LeakIndex":
        found: list[Numbers] = []
        lengths: set[int] = set()
        count = short = whole = 0
        for text in texts:
            count += 1
            grams = NGrams.of(words_of(_lower(clean(text, cleaning).text)))  # as the documents are
            spans = grams.spans(_sizes_of(words))
            if len(spans[0]) == 0:
                length = len(grams.kinds)
                if len(grams.spans(_sizes_of(least))[0]) == 0:
                    short += 1
                    continue
                spans = grams.runs(length)
                lengths.add(length)
                whole += 1
            found.append(np.unique(grams.numbers(*spans)))
        numbers = np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)
        return cls(numbers, np.array(sorted(lengths), np.int64), words, count, whole, short)

    def save(self, folder: Path) -> None:
        np.save(folder / TEST_NGRAMS_FILE, self.numbers, allow_pickle=False)
        np.save(folder / _TEST_LENGTHS_FILE, self.lengths, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, words: int) -> "LeakIndex":
        """Not read into memory: every worker looks at the same pages of the file."""
        numbers = np.load(folder / TEST_NGRAMS_FILE, mmap_mode="r", allow_pickle=False)
        return cls(numbers, np.load(folder / _TEST_LENGTHS_FILE, allow_pickle=False), words)

    def hits(self, text: str, row: int) -> Hits:
        """Where n-grams of the tests are in a text."""
        if len(self.numbers) == 0:
            return np.zeros(0, HIT_DTYPE)
        lower = _lower(text)
        grams = NGrams.of(words_of(lower))
        found = [
            self._look(grams, *spans)
            for spans in (grams.spans(_sizes_of(self.words)), *(grams.runs(length) for length in self.lengths.tolist()))
        ]
        hits = np.zeros(sum(len(ngrams) for ngrams, _, _ in found), HIT_DTYPE)
        if len(hits):
            begins, ends = np.array(places_of_words(lower), np.int64).T
            ngrams, starts, stops = (np.concatenate(column) for column in zip(*found, strict=True))
            hits["row"], hits["ngram"], hits["begin"], hits["end"] = row, ngrams, begins[starts], ends[stops - 1]
        return hits

    def _look(self, grams: NGrams, starts: Places, ends: Places) -> tuple[Places, Places, Places]:
        numbers = grams.numbers(starts, ends)
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        found = self.numbers[places] == numbers
        return places[found], starts[found], ends[found]


def find_common_ngrams(pieces: Iterable[tuple[Path, NDArray[np.bool_]]], count: int, most: int) -> NDArray[np.bool_]:
    """Which of the tests' n-grams are in more than so many documents: of each piece its folder, and which stay."""
    documents = np.zeros(count, np.int64)
    for folder, stays in pieces:
        hits = np.load(folder / HITS_FILE, allow_pickle=False)
        pairs = np.unique(hits[stays[hits["row"]]][["row", "ngram"]])
        np.add.at(documents, pairs["ngram"], 1)
    return documents > most


def ranges_by_row(folder: Path, common: NDArray[np.bool_]) -> dict[int, list[TextRange]]:
    """Of a piece: what to cut out of which document."""
    hits = np.load(folder / HITS_FILE, allow_pickle=False)
    spans: dict[int, list[TextRange]] = {}
    for row, begin, end in hits[~common[hits["ngram"]]][["row", "begin", "end"]].tolist():
        spans.setdefault(row, []).append((begin, end))
    return spans


def pieces_without(text: str, spans: Sequence[TextRange], window: int, most_pieces: int) -> list[TextRange]:
    """The pieces of a text that are left; none, if there would be too many."""
    pieces = list(_between(text, spans, window))
    return [] if len(pieces) > most_pieces else [span for span in pieces if weight_of(text[slice(*span)]) >= window]


def _between(text: str, spans: Sequence[TextRange], window: int) -> Iterator[TextRange]:
    start = 0
    for begin, end in sorted(spans):
        stop = _outwards(text, max(begin - window, 0), -1)
        if stop > start:
            yield start, stop
        start = max(start, _outwards(text, min(end + window, len(text)), 1))
    if start < len(text):
        yield start, len(text)


def _outwards(text: str, place: int, step: int) -> int:
    """A little further from what is cut out, to where a word ends; where there are no spaces, just there."""
    for moved in range(place, max(min(place + step * _MOST_MOVED, len(text)), 0), step):
        if text[moved : moved + 1].isspace():
            return moved
    return place


def _lower(text: str) -> str:
    """In lower case, with every character in its place: a few of them would become two."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
