"""Sentence permutation (Lewis et al. 2020, section 2.2): the sentences of a document in random order.

Sentences are found in the tokens, as in BART, so that the text is tokenized as it will be in fine-tuning. A sentence
ends with final punctuation and the quotes and brackets that close behind it, or with its line. The full stop of an
abbreviation ends one, too: this is noise, not analysis.
"""

import re
from dataclasses import dataclass

import numpy as np

from weft.tokenizer.tokenizer import Tokenizer
from weft.words import ENDS_OF_SENTENCES

_CLOSING = r"[\"'”’」』)\]]"
_ENDS = re.compile(rf".*(?:[.!?。！？…{ENDS_OF_SENTENCES}]{_CLOSING}*|\n)\s*", re.DOTALL)
_CLOSES = re.compile(rf"{_CLOSING}+\s*")


@dataclass(frozen=True)
class SentenceMarks:
    """What permutation needs to know of a tokenizer."""

    ends: np.ndarray  # (size,) true for tokens that end a sentence
    closes: np.ndarray  # (size,) true for closing quotes and brackets, which belong to the sentence before them


def sentence_marks(tokenizer: Tokenizer) -> SentenceMarks:
    special, size = tokenizer.special_ids, tokenizer.vocabulary
    plain = [number for number in range(size) if number not in special]
    texts = tokenizer.engine.decode_batch([[number] for number in plain], skip_special_tokens=False)
    ends, closes = np.zeros(size, bool), np.zeros(size, bool)
    for number, text in zip(plain, texts, strict=True):
        ends[number] = _ENDS.fullmatch(text) is not None
        opens = (tokenizer.engine.id_to_token(number) or "").startswith("▁")  # the decoder drops this space
        closes[number] = not opens and _CLOSES.fullmatch(text) is not None
    return SentenceMarks(ends, closes)


def permute_sentences(ids: np.ndarray, marks: SentenceMarks, separator: int, rng: np.random.Generator) -> np.ndarray:
    """The text with the sentences of each document in random order. Separators of documents stay where they are."""
    starts, borders = _starts(ids, marks, separator)
    sentences = np.split(ids, np.flatnonzero(starts)[1:])
    documents = np.cumsum(borders)[starts]  # of each sentence; a separator is one by itself
    order = np.lexsort((rng.random(len(sentences)), documents))
    return np.concatenate([sentences[number] for number in order])


def _starts(ids: np.ndarray, marks: SentenceMarks, separator: int) -> tuple[np.ndarray, np.ndarray]:
    """(length,) true where a sentence begins, and where a document or a separator does."""
    ended, closes = marks.ends[ids], marks.closes[ids]
    while (more := ended[:-1] & closes[1:] & ~ended[1:]).any():
        ended[1:] |= more
    borders = ids == separator
    borders[1:] |= ids[:-1] == separator
    starts = borders.copy()
    starts[:1] = True
    starts[1:] |= ended[:-1] & ~ended[1:]
    return starts, borders
