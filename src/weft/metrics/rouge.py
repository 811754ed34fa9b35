"""ROUGE (Lin 2004): how much of a reference a summary says in the same words.

ROUGE-1 and -2 count common words and pairs of words, ROUGE-L the longest common subsequence, and ROUGE-Lsum the union
of those that each sentence (a line is one) of the reference has with the sentences of the summary. All as F1 and equal
to the `rouge_score` package without its stemmer: lower case, and words are runs of a–z and 0–9. That package drops all
other letters, which leaves nothing of Hindi and half of Vietnamese; so where either text has a letter beyond Latin-1,
the words are those of `weft.words` (a Chinese or Japanese character is one by itself).

Subsequences are found with the bits of a Python integer, a column of the usual table in a few operations (Hyyrö 2004,
"Bit-parallel LCS-length computation revisited").
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import regex

from weft.metrics.examples import check_pairs
from weft.words import words_of

_PLAIN = re.compile("[a-z0-9]+")
_OTHER_LETTER = regex.compile(r"(?![\x00-\xff])[\p{L}\p{M}\p{Nd}]")


def rouge(predicted: str, gold: str) -> dict[str, float]:
    words = _words if _OTHER_LETTER.search(predicted) or _OTHER_LETTER.search(gold) else _plain_words
    ours, theirs = words(predicted), words(gold)
    return {
        "rouge1": _shared(Counter(ours), Counter(theirs)),
        "rouge2": _shared(Counter(pairwise(ours)), Counter(pairwise(theirs))),
        "rougeL": _f1(_common(_places(theirs), ours).bit_count(), len(ours), len(theirs)),
        "rougeLsum": _summary_level([*map(words, predicted.split("\n"))], [*map(words, gold.split("\n"))]),
    }


def rouge_of_each(predictions: Sequence[str], golds: Sequence[str]) -> dict[str, np.ndarray]:
    """By kind, of shape (N,); what is reported is the mean."""
    check_pairs(golds, predictions)
    scores = [rouge(predicted, gold) for predicted, gold in zip(predictions, golds, strict=True)]
    return {kind: np.asarray([score[kind] for score in scores]) for kind in scores[0]}


def _plain_words(text: str) -> list[str]:
    return _PLAIN.findall(text.lower())


def _words(text: str) -> list[str]:
    return words_of(text.lower())


def _shared(ours: Counter[Any], theirs: Counter[Any]) -> float:
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def _f1(hits: int, ours: int, theirs: int) -> float:
    return 2 * hits / (ours + theirs) if hits else 0.0


def _summary_level(ours: list[list[str]], theirs: list[list[str]]) -> float:
    hits: Counter[str] = Counter()
    for sentence in theirs:
        places = _places(sentence)
        union = 0
        for other in ours:
            union |= _common(places, other)
        hits.update(word for place, word in enumerate(sentence) if union >> place & 1)
    said = Counter(chain.from_iterable(ours))
    # A word of ours that two of their sentences found counts once (ROUGE-1.5.5; not in the paper).
    return _f1((hits & said).total(), said.total(), sum(map(len, theirs)))


def _places(words: list[str]) -> dict[str, int]:
    """For each word the bits of the places where it stands."""
    places: dict[str, int] = defaultdict(int)
    for place, word in enumerate(words):
        places[word] |= 1 << place
    return dict(places)


def _common(places: dict[str, int], words: list[str]) -> int:
    """The places of one longest common subsequence, as bits.

    Column by column of the table of lengths: bit i of `column` is 0 where the length grows from place i − 1 to i.
    Then back from the last corner. Of several subsequences as long, the way back takes the one `rouge_score` does (it
    matters once they are united): a match wherever words are equal, else upwards while that loses nothing.
    """
    everywhere = (1 << sum(map(int.bit_count, places.values()))) - 1
    column, columns = everywhere, []
    for word in words:
        here = places.get(word, 0)
        if here:
            match = column & here
            column = ((column + match) | (column - match)) & everywhere
        columns.append((here, column))
    common, below = 0, everywhere
    for here, column in reversed(columns):
        stop = (here | ~column) & below
        if not stop:
            break
        top = 1 << (stop.bit_length() - 1)
        if here & top:
            common |= top
            below = top - 1
        else:
            below = 2 * top - 1
    return common
