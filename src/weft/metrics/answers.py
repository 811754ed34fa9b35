"""Answers to questions, compared as SQuAD's official script does (Rajpurkar et al. 2016, 2018).

Case, punctuation and articles do not count. "exact" asks for the same words in the same order, "f1" for as many common
words as possible; of several gold answers the most similar one counts. A question without gold answers cannot be
answered, and the right prediction is the empty one. Chinese and Japanese, which the script would take for one long
word, are compared by characters, as CMRC 2018 does.
"""

import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import category

import numpy as np
import regex

from weft.metrics.examples import check_pairs
from weft.words import CHARACTER

_ARTICLE = regex.compile(r"\b(a|an|the)\b(?!\p{M})")  # an a with an accent of its own is another word
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHARACTER = regex.compile(rf"({CHARACTER}\p{{M}}*)")


def normalized(text: str) -> str:
    text = text.lower().translate(_PUNCTUATION)
    if _CHARACTER.search(text):  # 《》, 。 and “” too; in English the script leaves what is not ASCII
        text = "".join(character for character in text if not category(character).startswith("P"))
    return " ".join(_ARTICLE.sub(" ", text).split())


def exact(predicted: str, golds: Sequence[str]) -> float:
    return float(any(_words(predicted) == _words(gold) for gold in _told(golds)))


def overlap(predicted: str, golds: Sequence[str]) -> float:
    """F1 of the words, with the gold answer that gives the most."""
    return max(_f1(_words(predicted), _words(gold)) for gold in _told(golds))


def answer_figures(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means of `exact` and `overlap` ("f1"). Where some questions cannot be answered, also of either kind alone."""
    check_pairs(golds, predictions)
    scores = np.array([(exact(one, of), overlap(one, of)) for one, of in zip(predictions, golds, strict=True)])
    answerable = np.array([is_answerable(of) for of in golds])
    figures = _means(scores, "")
    if not answerable.all():
        figures |= _means(scores[answerable], "_answerable") if answerable.any() else {}
        figures |= _means(scores[~answerable], "_unanswerable")
    return figures


def is_answerable(golds: Sequence[str]) -> bool:
    return any(gold.strip() for gold in golds)


def _means(scores: np.ndarray, ending: str) -> dict[str, float]:
    return {f"exact{ending}": float(scores[:, 0].mean()), f"f1{ending}": float(scores[:, 1].mean())}


def _told(golds: Sequence[str]) -> list[str]:
    """Gold answers of which something is left; without any, the empty one."""
    return [gold for gold in golds if normalized(gold)] or [""]


def _words(text: str) -> list[str]:
    return _CHARACTER.sub(r" \1 ", normalized(text)).split()


def _f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    return 2 * (Counter(predicted) & Counter(gold)).total() / (len(predicted) + len(gold))
