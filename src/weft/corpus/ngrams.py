"""64-bit hashes of all n-grams of a text at once, equal in every process.

The size of an n-gram is given in words, in characters (Chinese, Japanese) and in letters (Thai, Khmer …). Where a text
changes its script, an n-gram is a mixture in which a word counts for as many characters as the sizes say. So the
language of the text need not be known.

The hash is a polynomial of the words' codes modulo 2⁶⁴. Those of all n-grams of any length follow from one array of
prefix sums (Rabin and Karp 1987).
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np
from numpy.typing import NDArray

from weft.splitmix64 import GOLDEN_GAMMA, mix64
from weft.words import kind_of, may_be_unspaced

Numbers = NDArray[np.uint64]
Places = NDArray[np.int64]
Sizes = tuple[int, int, int]  # words, characters and letters of an n-gram
_INVERSE = pow(GOLDEN_GAMMA, -1, 2**64)


@dataclass(frozen=True)
class NGrams:
    """The n-grams of a list of words."""

    sums: Numbers  # (words + 1,)
    kinds: NDArray[np.int8]  # of the words: see `weft.words.kind_of`

    @classmethod
    def of(cls, words: Sequence[str]) -> "NGrams":
        text = " ".join(words)
        each = text.encode().split(b" ") if text else []
        codes = mix64(np.fromiter(map(zlib.crc32, each), np.uint64, len(each)))
        if may_be_unspaced(text):
            kind = {word: kind_of(word) for word in set(words)}
            kinds = np.fromiter(map(kind.__getitem__, words), np.int8, len(words))
        else:
            kinds = np.zeros(len(words), np.int8)
        sums = np.zeros(len(each) + 1, np.uint64)
        np.cumsum(codes * _powers(GOLDEN_GAMMA, len(each)), out=sums[1:])
        return cls(sums, kinds)

    def spans(self, sizes: Sizes) -> tuple[Places, Places]:
        """Where the n-grams of this size begin and end, in words. A shorter text has none."""
        unit = lcm(*sizes)
        weights = np.array([unit // size for size in sizes], np.int64)[self.kinds]
        until = np.concatenate([[0], np.cumsum(weights)])
        ends = np.searchsorted(until, until[:-1] + unit)
        count = int(np.searchsorted(ends, len(until)))  # those that end inside the text
        return np.arange(count), ends[:count]

    def runs(self, length: int) -> tuple[Places, Places]:
        """Where the runs of `length` words, of any kind, begin and end."""
        starts = np.arange(max(len(self.kinds) - length + 1, 0))
        return starts, starts + length

    def numbers(self, starts: Places, ends: Places) -> Numbers:
        """The hashes of the n-grams from `starts` to before `ends`."""
        inverse = _powers(_INVERSE, len(self.sums))
        sums: Numbers = (self.sums[ends] - self.sums[starts]) * inverse[starts]
        return mix64(sums + (ends - starts).astype(np.uint64))


def _powers(base: int, count: int) -> Numbers:
    """1, base, base² … modulo 2⁶⁴."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)
