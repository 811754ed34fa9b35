"""Divides documents into train, validation and test, reproducibly.

The split follows from the hash of the text: order, file names and other documents do not matter, and equal texts get
the same split. Among few documents a share by hash varies too much, so those with the lowest hashes are held out. A
few long documents (books) are divided instead: training gets the beginning, the end is held out.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

from weft.errors import RecipeError
from weft.sources.documents import Document

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
FEW_DOCUMENTS, BOOK_CHARACTERS = (
    100,
    20_000,
)  # below this many documents the lowest hashes are held out; mean length of a book


class CannotSpare(RecipeError):
    """There are too few documents to hold any out."""


@dataclass(frozen=True)
class Shares:
    """How much is held out: below 1 a share of the text, from 1 a number of characters."""

    validation: float = 0.0
    test: float = 0.0

    def __post_init__(self) -> None:
        if any(share > 1 and share % 1 for share in (self.validation, self.test)):
            raise RecipeError("corpus.splits: a value above 1 is a number of characters and must be an integer.")
        held_out = [share for share in (self.validation, self.test) if share < 1]
        if sum(held_out) >= 1:
            raise RecipeError(
                "corpus.splits: validation and test leave nothing to train on. Their sum must be below 1."
            )

    def of(self, split: SplitName) -> float:
        return {"validation": self.validation, "test": self.test}[split]


def texts_of(split: SplitName, documents: Callable[[], Iterable[Document]], shares: Shares) -> Iterator[str]:
    """The texts of one split. `documents` is called twice, so that nothing is kept in memory."""
    if split != "train" and shares.of(split) == 0:
        return iter(())
    first = [(_split_position(document.text), len(document.text)) for document in islice(documents(), FEW_DOCUMENTS)]
    division = divide([place for place, _ in first], sum(length for _, length in first), shares)
    parts = (division.part(split, document.text, _split_position(document.text)) for document in documents())
    return (part for part in parts if part.strip())


@dataclass(frozen=True)
class Division:
    """How the documents of a source are divided: by hash, at the `borders`. If these are None, each document is cut."""

    shares: Shares
    borders: tuple[float, float] | None

    def side(self, place: float) -> SplitName:
        assert self.borders is not None
        return "validation" if place < self.borders[0] else "test" if place < self.borders[1] else "train"

    def part(self, split: SplitName, text: str, place: float) -> str:
        """The part of a document that belongs to the split; empty if none does."""
        if self.borders is None:
            return _cut_out(text, self.shares, split)
        return text if self.side(place) == split else ""


def divide(places: Sequence[float], characters: int, shares: Shares) -> Division:
    """`places` and `characters` describe the first `FEW_DOCUMENTS` documents, or all if there are fewer."""
    if max(shares.validation, shares.test) >= 1 and len(places) > 1:
        raise RecipeError(
            "corpus.splits: a number of characters can be held out only if the source is one text. Use a share below 1."
        )
    if len(places) >= FEW_DOCUMENTS:
        return Division(shares, (shares.validation, shares.validation + shares.test))
    if len(places) == 1 or characters >= BOOK_CHARACTERS * len(places):
        return Division(shares, None)
    return Division(shares, _borders(sorted(places), shares))


def _cut_out(text: str, shares: Shares, split: SplitName) -> str:
    test = _characters(text, shares.test)
    validation = _characters(text, shares.validation)
    if test + validation >= len(text):
        raise RecipeError(
            f"corpus.splits: a text of {len(text):,} characters is too short to hold out {test + validation:,}."
        )
    ends = {"test": len(text), "validation": len(text) - test, "train": len(text) - test - validation}
    begins = {"test": ends["validation"], "validation": ends["train"], "train": 0}
    return text[begins[split] : ends[split]]


def _characters(text: str, share: float) -> int:
    return int(share) if share >= 1 else round(len(text) * share)


def _borders(places: list[float], shares: Shares) -> tuple[float, float]:
    """For few documents: those with the lowest hashes are held out, at least one for each split that is wanted."""
    validation, test = (
        max(1, round(share * len(places))) if share else 0 for share in (shares.validation, shares.test)
    )
    if validation + test >= len(places):
        raise CannotSpare(f"corpus.splits: {len(places)} documents are too few to hold out {validation + test}.")
    return places[validation], places[validation + test]


def _split_position(text: str) -> float:
    """A hash of the text in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
