"""What is held out for validation and test, always the same however often it is asked.

Documents are divided by the hash of their text: order, file names and neighbours do not matter, and two copies of a
text never stand on different sides. A share by hash is a matter of luck among a few documents, so there those with the
lowest hashes are held out; and a few long ones (books) are cut instead: the beginning is trained on, the end held out.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

from weft.corpus.read import Document
from weft.errors import RecipeError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
FEW, LONG = 100, 20_000  # documents; characters of a book


@dataclass(frozen=True)
class Shares:
    """Below 1 a share of the text, from 1 on so many characters."""

    validation: float = 0.0
    test: float = 0.0

    def __post_init__(self) -> None:
        held_out = [share for share in (self.validation, self.test) if share < 1]
        if sum(held_out) >= 1:
            raise RecipeError("corpus.splits: validation and test leave nothing to train on.")

    def of(self, split: Split) -> float:
        return {"validation": self.validation, "test": self.test}[split]


def texts_of(split: Split, documents: Callable[[], Iterable[Document]], shares: Shares) -> Iterator[str]:
    """The texts of one split. `documents` is called anew, so that nothing is kept in memory."""
    if split != "train" and shares.of(split) == 0:
        return iter(())
    first = [(_hash(document.text), len(document.text)) for document in islice(documents(), FEW)]
    if max(shares.validation, shares.test) >= 1 and len(first) > 1:
        raise RecipeError("corpus.splits: a number of characters can be held out only of a source that is one text.")
    if len(first) == 1 or (len(first) < FEW and sum(length for _, length in first) >= LONG * len(first)):
        return (part for document in documents() if (part := _by_place(document.text, shares, split)).strip())
    borders = _borders(sorted(hashed for hashed, _ in first), shares) if len(first) < FEW else _thresholds(shares)
    return (document.text for document in documents() if _side(document.text, borders) == split)


def _by_place(text: str, shares: Shares, split: Split) -> str:
    test = _characters(text, shares.test)
    validation = _characters(text, shares.validation)
    if test + validation >= len(text):
        raise RecipeError(f"corpus.splits: a text of {len(text):,} characters cannot spare {test + validation:,}.")
    ends = {"test": len(text), "validation": len(text) - test, "train": len(text) - test - validation}
    begins = {"test": ends["validation"], "validation": ends["train"], "train": 0}
    return text[begins[split] : ends[split]]


def _characters(text: str, share: float) -> int:
    return int(share) if share >= 1 else round(len(text) * share)


def _thresholds(shares: Shares) -> tuple[float, float]:
    """Below the first hash validation, below the second test."""
    return shares.validation, shares.validation + shares.test


def _borders(hashes: list[float], shares: Shares) -> tuple[float, float]:
    """The same among a few: the lowest hashes, one at the least of each part that is asked for."""
    validation, test = (
        max(1, round(share * len(hashes))) if share else 0 for share in (shares.validation, shares.test)
    )
    if validation + test >= len(hashes):
        raise RecipeError(f"corpus.splits: {len(hashes)} documents cannot spare {validation + test}.")
    return hashes[validation], hashes[validation + test]


def _side(text: str, borders: tuple[float, float]) -> Split:
    place = _hash(text)
    return "validation" if place < borders[0] else "test" if place < borders[1] else "train"


def _hash(text: str) -> float:
    """A number from 0 to 1."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
