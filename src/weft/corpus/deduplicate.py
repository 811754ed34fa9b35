"""Chooses which duplicates stay, and the split of each document.

Only the hash, the length and one band of the signature of each document are in memory at a time: about a hundred bytes
per document. Documents are numbered in the order of the pieces and their rows; the result depends on nothing else.

Of duplicates the longest stays; on a tie, the first. A dropped document is always a duplicate of one that stays: the
same text apart from case and white space, or a similar signature. With `keep: all` every document stays, and documents
that are linked by a chain of duplicates get the same split.
"""

import mmap
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.corpus.contamination import COMMON_NGRAMS_FILE, TEST_NGRAMS_FILE, find_common_ngrams
from weft.corpus.first_pass import BANDS_FILE, EXAMPLE_CHARACTERS, KEYS_FILE, SIGNATURES_FILE, TEXTS_FILE
from weft.corpus.near_duplicates import (
    BAND_COUNT,
    NEAR_DUPLICATE_SIMILARITY,
    SIGNATURE_SIZE,
    DuplicateGroups,
    choose_representatives,
    group_similar,
    signature_similarity,
)
from weft.corpus.ngrams import Numbers
from weft.corpus.split import FEW_DOCUMENTS, SPLITS, CannotSpare, Shares, divide
from weft.corpus.tables import rows_of_file
from weft.recipe.corpus import DecontaminateSection, DeduplicateSection
from weft.splitmix64 import mix64

FATES_FILE, COPIES_FILE = "fates.npy", "copies.npy"
EXACT, NEAR, DIVIDED, FIRST_SPLIT = (
    0,
    1,
    2,
    3,
)  # fate of a document; from FIRST_SPLIT: its split
_TRAIN = FIRST_SPLIT + SPLITS.index("train")
_MOST_GROUPS_SHOWN = 5  # in the report
_GROUP_SIZES = (2, 3, 4, 6, 11, 101)  # lower bounds of the size classes of groups


@dataclass(frozen=True)
class FilteredPiece:
    """A piece after the first pass."""

    folder: Path
    source: int
    kept: int


def choose_documents(
    pieces: Sequence[FilteredPiece],
    settings: DeduplicateSection,
    shares: Shares,
    seed: int,
    tests: DecontaminateSection | None = None,
) -> dict[str, Any]:
    """Writes the fate of each document into the folder of its piece. Returns the figures for the report."""
    starts = np.cumsum([0, *(piece.kept for piece in pieces)])
    keys = np.concatenate([np.fromfile(piece.folder / KEYS_FILE, "<u8").reshape(-1, 3) for piece in pieces])
    numbers = np.arange(len(keys))
    groups = DuplicateGroups(len(keys))
    first = _same_text(keys)
    if settings.exact:
        for number in np.flatnonzero(first != numbers).tolist():
            groups.join(int(first[number]), number)
    with _signatures(pieces) as signatures:
        if settings.near and signatures is not None:
            group_similar(signatures, _bands(pieces), groups)  # type: ignore[arg-type]

        def alike(one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.bool_]:
            same = (keys[one, :2] == keys[other, :2]).all(axis=1)
            if settings.near and signatures is not None:
                unlike = np.flatnonzero(~same)
                same[unlike] = signature_similarity(signatures, one[unlike], other[unlike]) >= NEAR_DUPLICATE_SIMILARITY  # type: ignore[arg-type]
            return same

        if settings.keep == "all":
            best, beyond = _best(groups.roots(), keys[:, 2]), 0
        else:
            best, beyond = choose_representatives(groups.roots(), keys[:, 2], alike)
    sizes = np.bincount(best, minlength=len(keys))
    source = np.repeat(np.array([piece.source for piece in pieces], np.int32), [piece.kept for piece in pieces])
    side = _sides(keys, best == numbers, source, shares, seed)
    if settings.keep == "best":
        fates = np.where((first != numbers) | _same(keys, best), EXACT, NEAR).astype(np.int8)
        fates[best == numbers] = side[best == numbers]
    else:
        # Dividing each of several duplicates would put the same words into several splits.
        fates = np.where((side[best] == DIVIDED) & (sizes[best] > 1), _TRAIN, side[best])
    for piece, start in zip(pieces, starts.tolist(), strict=False):
        part = slice(start, start + piece.kept)
        np.save(piece.folder / FATES_FILE, fates[part], allow_pickle=False)
        np.save(piece.folder / COPIES_FILE, keys[best[part], :2], allow_pickle=False)
    ignored = 0 if tests is None else _ignore_common(pieces, np.split(best == numbers, starts[1:-1]), tests)
    return {
        "ignored": ignored,
        "exact": int((fates == EXACT).sum()),
        "near": int((fates == NEAR).sum()),
        "across": int(((fates == EXACT) | (fates == NEAR))[source != source[best]].sum()),
        "groups": int((sizes > 1).sum()),
        "sizes": _size_table(sizes),
        "beyond": beyond,
        "largest": _largest(sizes, pieces, starts),
    }


def _ignore_common(
    pieces: Sequence[FilteredPiece], stays: Sequence[NDArray[np.bool_]], tests: DecontaminateSection
) -> int:
    """Saves which test n-grams are too common to be leaks; returns their number. Duplicates count once."""
    work = pieces[0].folder.parent
    count = len(np.load(work / TEST_NGRAMS_FILE, mmap_mode="r", allow_pickle=False))
    folders = [piece.folder for piece in pieces]
    common = find_common_ngrams(zip(folders, stays, strict=True), count, tests.most_documents)
    np.save(work / COMMON_NGRAMS_FILE, common, allow_pickle=False)
    return int(common.sum())


def _same_text(keys: Numbers) -> NDArray[np.intp]:
    """For each document, the first one with the same text."""
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal keys keep their order
    begins = np.ones(len(keys), bool)
    begins[1:] = (keys[order[1:], :2] != keys[order[:-1], :2]).any(axis=1)
    first = np.empty(len(keys), np.intp)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))] if len(keys) else order
    return first


def _same(keys: Numbers, best: NDArray[np.intp]) -> NDArray[np.bool_]:
    return (keys[:, :2] == keys[best, :2]).all(axis=1)


@contextmanager
def _signatures(pieces: Sequence[FilteredPiece]) -> Iterator["_Mapped | None"]:
    """All signatures in one memory-mapped file."""
    together = pieces[0].folder.parent / SIGNATURES_FILE
    with together.open("wb") as out:
        for piece in pieces:
            with (piece.folder / SIGNATURES_FILE).open("rb") as part:
                shutil.copyfileobj(part, out, 2**20)
    try:
        yield _Mapped(together) if together.stat().st_size else None
    finally:
        together.unlink()


def _bands(pieces: Sequence[FilteredPiece]) -> Iterator[Numbers]:
    for band in range(BAND_COUNT):
        yield np.concatenate([_band(piece, band) for piece in pieces])


def _band(piece: FilteredPiece, band: int) -> Numbers:
    if piece.kept == 0:
        return np.zeros(0, np.uint64)
    return np.memmap(piece.folder / BANDS_FILE, np.uint64, "r").reshape(-1, BAND_COUNT)[:, band].copy()


class _Mapped:
    """Rows of a memory-mapped file. Pages are released after each read; else the whole file would stay in memory."""

    def __init__(self, file: Path) -> None:
        self.rows = np.memmap(file, np.uint32, "r").reshape(-1, SIGNATURE_SIZE)
        self.mapped: mmap.mmap = self.rows.base._mmap  # type: ignore[union-attr]

    def __getitem__(self, numbers: NDArray[np.intp]) -> NDArray[np.uint32]:
        found = np.asarray(self.rows[numbers])
        if hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)
        return found


def _best(roots: NDArray[np.int64], lengths: Numbers) -> NDArray[np.intp]:
    """For each document, the longest of its group."""
    order = np.lexsort((np.arange(len(roots)), np.iinfo(np.int64).max - lengths.astype(np.int64), roots))
    begins = np.ones(len(roots), bool)
    begins[1:] = roots[order[1:]] != roots[order[:-1]]
    best = np.empty(len(roots), np.intp)
    best[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(roots)), 0))] if len(roots) else order
    return best


def _sides(
    keys: Numbers, is_best: NDArray[np.bool_], source: NDArray[np.int32], shares: Shares, seed: int
) -> NDArray[np.int8]:
    """The split of the representatives of all groups, source by source, from a hash of each document in [0, 1)."""
    salt = mix64(np.array([seed + 1], np.uint64))
    places = (mix64(keys[:, 0] ^ salt) >> np.uint64(11)).astype(np.float64) / 2**53
    side = np.full(len(keys), _TRAIN, np.int8)
    for number in np.unique(source):
        mine = np.flatnonzero(is_best & (source == number))
        side[mine] = _divided(places[mine], int(keys[mine, 2].sum()), shares)
    return side


def _divided(places: NDArray[np.float64], characters: int, shares: Shares) -> NDArray[np.int8] | int:
    if len(places) == 0 or shares.validation == shares.test == 0:
        return _TRAIN
    try:
        division = divide(places[:FEW_DOCUMENTS].tolist(), characters, shares)
    except CannotSpare:  # too few documents in this source
        return _TRAIN
    if division.borders is None:
        return DIVIDED
    low, high = division.borders
    validation, test = (FIRST_SPLIT + SPLITS.index(split) for split in ("validation", "test"))
    return np.where(places < low, validation, np.where(places < high, test, _TRAIN)).astype(np.int8)


def _size_table(sizes: NDArray[np.intp]) -> dict[str, int]:
    """The number of groups by size: 2, 3, 4 to 5 documents …"""
    table = {}
    for low, high in zip(_GROUP_SIZES, [*_GROUP_SIZES[1:], 2**62], strict=True):
        name = str(low) if high == low + 1 else f"{low}–{high - 1}" if high < 2**62 else f"{low} and more"
        table[name] = int(((sizes >= low) & (sizes < high)).sum())
    return {name: count for name, count in table.items() if count}


def _largest(
    sizes: NDArray[np.intp], pieces: Sequence[FilteredPiece], starts: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """The largest groups: their size and the beginning of the document that stays."""
    largest = np.argsort(-sizes, kind="stable")[:_MOST_GROUPS_SHOWN]
    found = []
    for number in largest[sizes[largest] > 1].tolist():
        piece = int(np.searchsorted(starts, number, side="right")) - 1
        text = _text_of(pieces[piece].folder, number - int(starts[piece]))
        found.append({"documents": int(sizes[number]), "text": text[:EXAMPLE_CHARACTERS]})
    return found


def _text_of(folder: Path, row: int) -> str:
    for number, found in enumerate(rows_of_file(folder / TEXTS_FILE)):
        if number == row:
            return found["text"]
    raise AssertionError(row)
