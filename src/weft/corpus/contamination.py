"""Keeps test sets out of the corpus: scores on texts that a model was trained on mean nothing.

As in Brown et al. 2020 (appendix C): a 13-gram of words that a document shares with a test text (26 characters of
Chinese, 52 letters of Thai, or a mixture) is cut out, with 200 characters on each side. Remaining pieces of fewer than
200 characters are dropped, and so is a document that falls into more than ten pieces. An n-gram in more than ten
documents is not a leak but a common phrase (a licence, a verse); it stays. A test text shorter than an n-gram is
searched for as a whole if it has at least eight words; shorter ones would match everywhere.

The first pass notes the hits, `find_common_ngrams` counts documents per n-gram, and the second pass cuts.
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
_MOST_MOVED = 30  # characters by which a cut may move outwards to fall between two words

Hits = NDArray[np.void]  # of HIT; places in characters
TextRange = tuple[int, int]


def _sizes_of(words: int) -> Sizes:
    return words, 2 * words, 4 * words


@dataclass(frozen=True)
class LeakIndex:
    """Sorted hashes of the test sets' n-grams, and the lengths in words of the short texts searched for whole."""

    numbers: Numbers
    lengths: NDArray[np.int64]
    words: int
    texts: int = 0
    whole: int = 0  # texts searched for as a whole
    short: int = 0  # texts too short to search for

    @classmethod
    def of(cls, texts: Iterable[str], words: int, least: int, cleaning: Cleaning) -> "LeakIndex":
        found: list[Numbers] = []
        lengths: set[int] = set()
        count = short = whole = 0
        for text in texts:
            count += 1
            grams = NGrams.of(words_of(_lower(clean(text, cleaning).text)))  # cleaned like the documents
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
        """Memory-maps the hashes, so that all workers share them."""
        numbers = np.load(folder / TEST_NGRAMS_FILE, mmap_mode="r", allow_pickle=False)
        return cls(numbers, np.load(folder / _TEST_LENGTHS_FILE, allow_pickle=False), words)

    def hits(self, text: str, row: int) -> Hits:
        """Where the text contains n-grams of the test sets."""
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
    """Which of the `count` n-grams occur in more than `most` documents. `pieces`: folders, and which rows stay."""
    documents = np.zeros(count, np.int64)
    for folder, stays in pieces:
        hits = np.load(folder / HITS_FILE, allow_pickle=False)
        pairs = np.unique(hits[stays[hits["row"]]][["row", "ngram"]])
        np.add.at(documents, pairs["ngram"], 1)
    return documents > most


def ranges_by_row(folder: Path, common: NDArray[np.bool_]) -> dict[int, list[TextRange]]:
    """The ranges to cut out of each row of a piece."""
    hits = np.load(folder / HITS_FILE, allow_pickle=False)
    spans: dict[int, list[TextRange]] = {}
    for row, begin, end in hits[~common[hits["ngram"]]][["row", "begin", "end"]].tolist():
        spans.setdefault(row, []).append((begin, end))
    return spans


def pieces_without(text: str, spans: Sequence[TextRange], window: int, most_pieces: int) -> list[TextRange]:
    """The pieces that are left without the ranges; empty if there are more than `most_pieces`."""
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
    """Moves a cut away from the removed range to the next space; without a space nearby it stays."""
    for moved in range(place, max(min(place + step * _MOST_MOVED, len(text)), 0), step):
        if text[moved : moved + 1].isspace():
            return moved
    return place


def _lower(text: str) -> str:
    """Lower case of the same length. The few characters whose lower case is longer stay as they are."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
