"""ROUGE (Lin 2004): the word overlap of a summary and a reference.

ROUGE-1 and -2 count common words and bigrams, ROUGE-L uses the longest common subsequence (LCS), and ROUGE-Lsum the
union of the LCSs of each reference sentence (a line) with all summary sentences. All are F1 and equal to the
`rouge_score` package without its stemmer: lower case, and words are runs of a–z and 0–9. That package drops all other
letters: all of Hindi and half of Vietnamese. So if either text has a letter beyond Latin-1, words are those of
`weft.words` (a Chinese or Japanese character is a word).

The LCS is bit-parallel: a Python integer holds a column of the dynamic programming table (Hyyrö 2004, "Bit-parallel
LCS-length computation revisited").
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import regex

from weft.metrics.bootstrap import mean_interval
from weft.metrics.examples import check_pairs
from weft.metrics.judged import Judged
from weft.words import words_of

ROUGE_TITLES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}

_PLAIN = re.compile("[a-z0-9]+")
_OTHER_LETTER = regex.compile(r"(?![\x00-\xff])[\p{L}\p{M}\p{Nd}]")


def rouge(predicted: str, gold: str) -> dict[str, float]:
    words = _cutter(predicted, gold)
    ours, theirs = words(predicted), words(gold)
    return {
        "rouge1": _shared(Counter(ours), Counter(theirs)),
        "rouge2": _shared(Counter(pairwise(ours)), Counter(pairwise(theirs))),
        "rougeL": _f1(_common(_places(theirs), ours).bit_count(), len(ours), len(theirs)),
        "rougeLsum": _summary_level([*map(words, predicted.split("\n"))], [*map(words, gold.split("\n"))]),
    }


def rouge_of_each(predictions: Sequence[str], references: Sequence[str]) -> dict[str, np.ndarray]:
    """The scores (N,) of all examples, by variant. Reports show their mean."""
    check_pairs(references, predictions)
    scores = [rouge(predicted, gold) for predicted, gold in zip(predictions, references, strict=True)]
    return {kind: np.asarray([score[kind] for score in scores]) for kind in scores[0]}


def judge_summaries(predictions: Sequence[str], references: Sequence[str]) -> Judged:
    each = rouge_of_each(predictions, references)
    figures = {name: float(values.mean()) for name, values in each.items()}
    intervals = {name: mean_interval(values) for name, values in each.items()}
    return Judged(figures, intervals, each["rougeL"], 1 - each["rougeL"])


def best_units(units: Sequence[str], reference: str, most: int) -> list[int]:
    """The sentences that together are most like a reference, found greedily: each time the one that raises ROUGE-1 plus
    ROUGE-2 most, until none does. In the order of the text; at least one. Bigrams do not cross sentences.
    """
    words = _cutter(*units, reference)
    wanted = [Counter[Any](grams) for grams in _grams(words(reference))]
    own = [_grams(words(unit)) for unit in units]
    sizes = [[len(grams) for grams in one] for one in own]
    shared = [[Counter(g for g in grams if g in gold) for grams, gold in zip(one, wanted, strict=True)] for one in own]
    chosen, left, best = list[int](), set(range(len(units))), 0.0
    have, size = [Counter[Any](), Counter[Any]()], [0, 0]

    def gain(number: int) -> float:
        total = 0.0
        for kind in (0, 1):
            hits = sum(min(have[kind][g] + count, wanted[kind][g]) for g, count in shared[number][kind].items())
            hits += sum(min(count, wanted[kind][g]) for g, count in have[kind].items() if g not in shared[number][kind])
            length = size[kind] + sizes[number][kind] + wanted[kind].total()
            total += 2 * hits / length if length else 0.0
        return total

    while left and len(chosen) < most:
        number = max(sorted(left), key=gain)
        found = gain(number)
        if chosen and found <= best:
            break
        chosen.append(number)
        left.remove(number)
        best = found
        for kind in (0, 1):
            have[kind] += shared[number][kind]
            size[kind] += sizes[number][kind]
    return sorted(chosen)


def _grams(words: list[str]) -> list[list[Any]]:
    return [words, list(pairwise(words))]


def _cutter(*texts: str) -> Callable[[str], list[str]]:
    return _words if any(_OTHER_LETTER.search(text) for text in texts) else _plain_words


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
    # A predicted word that matches in two reference sentences counts once (ROUGE-1.5.5; not in the paper).
    return _f1((hits & said).total(), said.total(), sum(map(len, theirs)))


def _places(words: list[str]) -> dict[str, int]:
    """For each word, the bit mask of its positions."""
    places: dict[str, int] = defaultdict(int)
    for place, word in enumerate(words):
        places[word] |= 1 << place
    return dict(places)


def _common(places: dict[str, int], words: list[str]) -> int:
    """The positions of one longest common subsequence, as a bit mask.

    The table of lengths is computed column by column: bit i of `column` is 0 where the length grows from position i − 1
    to i. Then it is traced back from the last corner. Of several LCSs the trace finds the one of `rouge_score`, which
    matters for their union: it matches wherever words are equal, and otherwise moves up if that loses nothing.
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
