"""Finds near duplicates by MinHash and banding (Broder 1997; Leskovec et al. 2014, ch. 3).

A text is the set of its shingles: 5-grams of words and symbols in lower case (5 characters of Chinese; 15 letters of
Thai or Khmer, whose letters are less than a syllable). The similarity of two texts is the Jaccard index of their sets,
J = |A ∩ B| / |A ∪ B|. The minimum of a random hash over all shingles is equal in both texts with probability J, so the
minima of 120 hashes estimate J: the signature. With 20 bands of 6 hashes, two signatures agree in some band with
probability 1 − (1 − J⁶)²⁰: 0.998 at J = 0.8, 0.27 at 0.5. Within a band, each document is compared with the one before
it and with a few others. Two documents are joined into one group if their signatures agree in at least
`NEAR_DUPLICATE_SIMILARITY` of the hashes.

A group is a chain: its ends may have nothing in common. So `choose_representatives` drops only what is similar to a
document that stays.

A text of fewer than ten shingles has no signature: one changed word would change half of them. Such texts are
duplicates only if they are equal.

The groups depend on the numbers of the documents only, not on the order of the work.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.corpus.ngrams import NGrams, Numbers, Sizes
from weft.splitmix64 import GOLDEN_GAMMA, mix64
from weft.words import words_and_symbols

BAND_COUNT, _BAND_ROWS = 20, 6
SIGNATURE_SIZE = BAND_COUNT * _BAND_ROWS
_SHINGLE_SIZES: Sizes = (5, 5, 15)  # words, characters, letters
_LEAST_SHINGLES = 10
NEAR_DUPLICATE_SIMILARITY = 0.7
_SHINGLE_BLOCK = 4096  # shingles at a time: 120 hashes of each fit into the cache
_MOST_ROUNDS = 8  # comparisons of a document in a band: pages of one template can be very many
_PAIR_BLOCK = 20_000  # pairs compared at a time: 20 MB of signatures
MOST_REPRESENTATIVES = 100  # of a group; the rest of a larger group stays
_EMPTY = np.uint32(2**32 - 1)

Signatures = NDArray[np.uint32]  # (documents, ORDERS)


def shingles(text: str) -> Numbers:
    """The hashes of the shingles of a `folded` text."""
    grams = NGrams.of(words_and_symbols(text))
    return grams.numbers(*grams.spans(_SHINGLE_SIZES))


def sign(texts: Sequence[str]) -> Signatures:
    """The signatures of `folded` texts. Too short a text gets the empty signature, which is never compared."""
    signatures = np.full((len(texts), SIGNATURE_SIZE), _EMPTY)
    for signature, text in zip(signatures, texts, strict=True):
        found = shingles(text)
        for start in range(0, len(found) if len(found) >= _LEAST_SHINGLES else 0, _SHINGLE_BLOCK):
            np.minimum(signature, _smallest(found[start : start + _SHINGLE_BLOCK]), out=signature)
    return signatures


def _smallest(numbers: Numbers) -> NDArray[np.uint32]:
    """The minimum under each hash: multiply by an odd number, keep the upper half (Dietzfelbinger et al. 1997)."""
    return ((_FACTORS[:, None] * numbers[None, :]).min(axis=1) >> np.uint64(32)).astype(np.uint32)


_FACTORS: Numbers = mix64(np.arange(1, SIGNATURE_SIZE + 1, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA)) | np.uint64(1)


def band_keys(signatures: Signatures) -> Numbers:
    """(documents, BANDS): documents with the same key agree in all hashes of the band."""
    rows = signatures.reshape(len(signatures), BAND_COUNT, _BAND_ROWS).astype(np.uint64)
    return (rows * _FACTORS[:_BAND_ROWS]).sum(axis=2)  # modulo 2^64


# The keys of the empty signature.
_EMPTY_KEYS: Numbers = band_keys(np.full((1, SIGNATURE_SIZE), _EMPTY))[0]


def signature_similarity(signatures: Signatures, one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.float64]:
    """The estimated Jaccard index of pairs of documents."""
    found = np.zeros(len(one))
    for start in range(0, len(one), _PAIR_BLOCK):
        part = slice(start, start + _PAIR_BLOCK)
        found[part] = (signatures[one[part]] == signatures[other[part]]).mean(axis=1)
    return found


class DuplicateGroups:
    """Union-find in one array (Tarjan 1975). The root of a group is its lowest number."""

    def __init__(self, count: int) -> None:
        self.parent = np.arange(count, dtype=np.int64)

    def root(self, number: int) -> int:
        parent = self.parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return int(number)

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self.parent[high] = low

    def roots(self) -> NDArray[np.int64]:
        """The root of each document's group."""
        while not np.array_equal(self.parent, above := self.parent[self.parent]):
            self.parent = above
        return self.parent


def group_similar(signatures: Signatures, bands: Iterable[Numbers], groups: DuplicateGroups) -> None:
    """Joins similar documents. `bands` yields the columns of `band_keys` one by one: together with the signatures they
    may not fit into memory.
    """
    for key, empty in zip(bands, _EMPTY_KEYS, strict=True):
        order = np.argsort(key, kind="stable")
        order = order[key[order] != empty]
        _join_neighbours(groups, signatures, order, key[order])


def _join_neighbours(groups: DuplicateGroups, signatures: Signatures, order: NDArray[np.intp], key: Numbers) -> None:
    """`order` sorts the documents by `key`. Each is compared with the one before it and with the first of its key;
    those similar to neither are compared with the first of the remaining ones, and so on.
    """
    same = np.flatnonzero(key[1:] == key[:-1])
    _join(groups, signatures, order[same], order[same + 1])
    for _ in range(_MOST_ROUNDS):
        if len(order) < 2:
            return
        begins = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        first = np.repeat(begins, np.diff(np.append(begins, len(order))))
        rest = np.flatnonzero(first != np.arange(len(order)))
        unlike = rest[~_join(groups, signatures, order[first[rest]], order[rest])]
        order, key = order[unlike], key[unlike]


def _join(
    groups: DuplicateGroups, signatures: Signatures, one: NDArray[np.intp], other: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Joins the similar pairs and returns which they are. Pairs of one group are not compared again."""
    roots = groups.roots()
    found = roots[one] == roots[other]
    unknown = np.flatnonzero(~found)
    alike = unknown[signature_similarity(signatures, one[unknown], other[unknown]) >= NEAR_DUPLICATE_SIMILARITY]
    found[alike] = True
    for a, b in zip(one[alike].tolist(), other[alike].tolist(), strict=True):
        groups.join(a, b)
    return found


def choose_representatives(
    roots: NDArray[np.int64], lengths: Numbers, alike: Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[np.bool_]]
) -> tuple[NDArray[np.intp], int]:
    """For each document, the one that represents it; and how many stayed because their group was too large to compare.

    The longest of a group stays (on a tie, the first) and represents all that are similar to it. Of the rest again the
    longest stays, and so on. One round handles all groups.
    """
    best = np.arange(len(roots))
    order = np.lexsort((best, np.iinfo(np.int64).max - lengths.astype(np.int64), roots))
    for _ in range(MOST_REPRESENTATIVES):
        root = roots[order]
        begins = np.flatnonzero(np.concatenate([[True], root[1:] != root[:-1]])) if len(order) else best[:0]
        first = np.repeat(begins, np.diff(np.append(begins, len(order))))
        rest = np.flatnonzero(first != np.arange(len(order)))
        if len(rest) == 0:
            return best, 0
        like = alike(order[first[rest]], order[rest])
        best[order[rest[like]]] = order[first[rest[like]]]
        order = order[rest[~like]]
    return best, len(order)
