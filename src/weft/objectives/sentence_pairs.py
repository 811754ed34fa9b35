"""Two segments of text, A and B, with a label.

Next sentence (Devlin et al. 2019): in half of the pairs B follows A in its document, in half it is from another one.
Sentence order (Lan et al. 2020): A and B are consecutive; in half of the pairs they are swapped.

A sample is a sentence that is not the last of its document. A starts with it and takes whole sentences until about half
of the tokens are used; B takes the rest. Some pairs are cut to a random shorter length.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from weft.errors import InputError
from weft.tokens.shards import TokenShards

_SHORTENED_SHARE = 0.1  # of pairs that are cut to a random shorter length, as in BERT


@dataclass(frozen=True)
class SentencePair:
    first: np.ndarray
    second: np.ndarray
    label: int  # 0: as in the document; 1: from another document, or swapped (transformers' numbering)
    places: tuple[slice, slice]  # of the two in the token shards


@dataclass(frozen=True)
class SentencePairs:
    shards: TokenShards
    kind: Literal["next", "order"] = "next"

    def __post_init__(self) -> None:
        if len(self._anchors) == 0:
            raise InputError("No document has two sentences, so there are no sentence pairs to learn from.")
        if self.kind == "next" and len(self.shards.documents) < 2:
            raise InputError("Next-sentence pairs need at least two documents: B must come from another one.")

    def __len__(self) -> int:
        return len(self._anchors)

    def pair(self, sample: int, most_tokens: int, rng: np.random.Generator) -> SentencePair:
        """A pair of at most `most_tokens` tokens together, without separators."""
        if rng.random() < _SHORTENED_SHARE:
            most_tokens = int(rng.integers(2, max(most_tokens, 3)))
        start = int(self._anchors[sample])
        last = self._last_sentence(start)
        middle = self._middle(start, last, most_tokens // 2)
        flip = bool(rng.integers(2))
        follows = self._span(middle, last)
        if self.kind == "next" and flip:
            follows = self._elsewhere(self._document_of(start), rng)
        first, second = self._span(start, middle - 1), follows
        first, second = _shorten(first, second, most_tokens)
        if self.kind == "order" and flip:
            first, second = second, first
        return SentencePair(self._read(first), self._read(second), int(flip), (first, second))

    @cached_property
    def _ends(self) -> np.ndarray:
        return self.shards.sentences

    @cached_property
    def _last(self) -> np.ndarray:
        """The number of each document's last sentence."""
        return np.searchsorted(self._ends, self.shards.documents)

    @cached_property
    def _anchors(self) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self._ends)), self._last)

    def _document_of(self, sentence: int) -> int:
        return int(np.searchsorted(self._last, sentence))

    def _last_sentence(self, sentence: int) -> int:
        return int(self._last[self._document_of(sentence)])

    def _middle(self, start: int, last: int, room: int) -> int:
        """The first sentence of B. A gets as many as fit into `room` tokens; each gets at least one."""
        begin = self._begin(start)
        fitting = int(np.searchsorted(self._ends, begin + room, side="right"))
        return min(max(fitting, start + 1), last)

    def _elsewhere(self, document: int, rng: np.random.Generator) -> slice:
        """From a random sentence of a random other document to the end of that document."""
        other = int(rng.integers(len(self._last) - 1))
        other += other >= document
        first = int(self._last[other - 1]) + 1 if other else 0
        return self._span(int(rng.integers(first, self._last[other] + 1)), int(self._last[other]))

    def _begin(self, sentence: int) -> int:
        return int(self._ends[sentence - 1]) if sentence else 0

    def _span(self, first: int, last: int) -> slice:
        """The tokens from one sentence to another, without the separator at the end of a document."""
        end = int(self._ends[last])
        return slice(self._begin(first), end - int(last == self._last_sentence(last)))

    def _read(self, span: slice) -> np.ndarray:
        return self.shards[span]


def _shorten(first: slice, second: slice, most_tokens: int) -> tuple[slice, slice]:
    """Cut the longer of the two until both fit: A at its start, B at its end, so that they stay adjacent."""
    over = (first.stop - first.start) + (second.stop - second.start) - most_tokens
    while over > 0:
        a, b = first.stop - first.start, second.stop - second.start
        step = min(over, max(abs(a - b), 1))
        if a > b:
            first = slice(first.start + step, first.stop)
        else:
            second = slice(second.start, second.stop - step)
        over -= step
    return first, second
