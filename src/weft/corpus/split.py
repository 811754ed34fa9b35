"""What is held out for validation and test, always the same however often it is asked.

Many documents are divided by the hash of their text: order, file names and neighbours do not matter, and two copies of
a text never stand on different sides. Of a few documents (books) each is cut instead: its beginning is trained on, its
end held out.
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
FEW = 100  # documents; below this a share by hash would be a matter of luck


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
    count = sum(1 for _ in islice(documents(), FEW))
    if max(shares.validation, shares.test) >= 1 and count > 1:
        raise RecipeError("corpus.splits: a number of characters can be held out only of a source that is one text.")
    cut = _by_hash if count >= FEW else _by_place
    return (part for document in documents() if (part := cut(document.text, shares, split)).strip())


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


def _by_hash(text: str, shares: Shares, split: Split) -> str:
    place = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    for side in ("validation", "test"):
        if place < shares.of(side):
            return text if side == split else ""
        place -= shares.of(side)
    return text if split == "train" else ""
