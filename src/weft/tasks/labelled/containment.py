"""Which texts are contained in which others, as a sequence of whole words.

Every word has a random 64-bit code, and a window of words the hash Σ code(w_i) B^i. A sliding window costs nothing: its
hash is a difference of running sums (Karp and Rabin 1987, modulo 2⁶⁴). The windows of all texts are looked up among the
hashes of whole texts, a million words at a time; long texts only where their first `START` words match. Case and
punctuation are ignored; a Chinese or Japanese character is a word (weft.words).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.splitmix64 import GOLDEN_GAMMA
from weft.words import folded, words_and_symbols

START = 4  # words; shorter texts are phrases that occur anywhere
_BLOCK_WORDS = 1_000_000  # words at a time
_INVERSE = pow(GOLDEN_GAMMA, -1, 2**64)


def plain_words(text: str) -> list[str]:
    """The words of a text without case and punctuation. A text of punctuation alone is one word."""
    return words_and_symbols(folded(text)) or [text.strip()]


@dataclass(frozen=True)
class Texts:
    """Distinct texts as word numbers, one after another."""

    words: np.ndarray  # int32
    starts: np.ndarray  # where each text begins, and the end of the last

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1


def number_texts(texts: Sequence[str]) -> tuple[np.ndarray, Texts]:
    """The number of each text, and the distinct texts. Texts that differ in case and punctuation only are the same."""
    vocabulary: dict[str, int] = {}
    known: dict[bytes, int] = {}
    numbers = np.zeros(len(texts), np.int64)
    parts: list[np.ndarray] = []
    for place, text in enumerate(texts):
        row = np.asarray([vocabulary.setdefault(word, len(vocabulary)) for word in plain_words(text)], np.int32)
        number = known.setdefault(row.tobytes(), len(known))
        if number == len(parts):
            parts.append(row)
        numbers[place] = number
    starts = np.concatenate([[0], np.cumsum([len(row) for row in parts])]).astype(np.int64)
    return numbers, Texts(np.concatenate(parts) if parts else np.zeros(0, np.int32), starts)


@dataclass(frozen=True)
class _Block:
    """Texts with their running sums."""

    sums: np.ndarray
    inverse: np.ndarray  # B^−i
    ends: np.ndarray  # the end of each word's text
    owners: np.ndarray  # the number of each word's text

    def hashes(self, places: np.ndarray, lengths: np.ndarray | int) -> np.ndarray:
        return (self.sums[places + lengths] - self.sums[places]) * self.inverse[places]


def _blocks(texts: Texts) -> Iterator[_Block]:
    codes = np.random.default_rng(0).integers(0, 2**64, int(texts.words.max(initial=0)) + 1, np.uint64)
    first = 0
    while first < len(texts):
        last = max(first + 1, int(np.searchsorted(texts.starts, texts.starts[first] + _BLOCK_WORDS, "right")) - 1)
        begin, end = texts.starts[first], texts.starts[last]
        size = int(end - begin)
        powers, inverse = (_powers(base, size) for base in (GOLDEN_GAMMA, _INVERSE))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes[texts.words[begin:end]] * powers)])
        lengths = texts.lengths[first:last]
        yield _Block(
            sums, inverse, np.repeat(texts.starts[first + 1 : last + 1] - begin, lengths),
            np.repeat(np.arange(first, last), lengths),
        )  # fmt: skip
        first = last


def _powers(base: int, size: int) -> np.ndarray:
    factors = np.full(size, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


@dataclass(frozen=True)
class TextIndex:
    """Hashes of whole texts, to be found in others."""

    of_length: dict[int, tuple[np.ndarray, np.ndarray]]  # sorted hashes, and the numbers of their texts
    beginnings: np.ndarray  # sorted hashes of the first `START` words of longer texts
    shared: np.ndarray  # those of them that several texts begin with

    @classmethod
    def of(cls, texts: Texts) -> "TextIndex":
        lengths, whole, begin = texts.lengths, [], []
        for block in _blocks(texts):
            places = np.flatnonzero(np.diff(block.owners, prepend=-1))
            sizes = block.ends[places] - places
            whole.append(block.hashes(places, sizes))
            begin.append(block.hashes(places, np.minimum(sizes, START)))
        hashes, begins = (np.concatenate(parts) if parts else np.zeros(0, np.uint64) for parts in (whole, begin))
        of_length = {}
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            order = rows[np.argsort(hashes[rows], kind="stable")]
            of_length[length] = (hashes[order], order)
        beginnings, counts = np.unique(begins[lengths >= START], return_counts=True)
        return cls(of_length, beginnings, beginnings[counts > 1])

    def matches(self, texts: Texts, *, short: bool, same: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (text of the index, text of `texts` that contains it).

        `short`: for texts of the index with fewer than `START` words, else for the others. `same`: the index holds the
        same texts, and no text counts as contained in itself.
        """
        for block in _blocks(texts):
            places = np.arange(len(block.owners))
            if not short:
                places = places[places + START <= block.ends]
                begun = block.hashes(places, START)
                first = np.diff(block.owners, prepend=-1)[places] != 0
                # Every text begins with its own beginning; only one that another text shares is a match.
                wanted = np.where(first, _among(begun, self.shared), _among(begun, self.beginnings)) if same else None
                places = places[_among(begun, self.beginnings) if wanted is None else wanted]
            for length, (hashes, rows) in self.of_length.items():
                if (length < START) != short:
                    continue
                fitting = places[places + length <= block.ends[places]]
                found = block.hashes(fitting, length)
                at = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
                is_hit = hashes[at] == found
                inner, outer = rows[at[is_hit]], block.owners[fitting[is_hit]]
                if same:
                    inner, outer = inner[inner != outer], outer[inner != outer]
                if len(inner):
                    yield inner, outer


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
