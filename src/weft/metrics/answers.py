"""Exact match and F1 of answers, as in SQuAD's official script (Rajpurkar et al. 2016, 2018).

Case, punctuation and articles are ignored. "exact": the same words in the same order. "f1": overlap of the words. Of
several gold answers the best match counts. A question without gold answers is unanswerable, and the right prediction is
empty. Chinese and Japanese are compared by characters, as in CMRC 2018: the script would take a sentence for one word.
"""

import string
from collections import Counter
from collections.abc import Sequence
from unicodedata import category

import numpy as np
import regex

from weft.metrics.examples import check_pairs
from weft.words import CHARACTER

_ARTICLE = regex.compile(r"\b(a|an|the)\b(?!\p{M})")  # not an a followed by a combining accent
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHARACTER = regex.compile(rf"({CHARACTER}\p{{M}}*)")


def normalized(text: str) -> str:
    text = text.lower().translate(_PUNCTUATION)
    if _CHARACTER.search(text):  # 《》, 。 and “” too; in English the script keeps non-ASCII punctuation
        text = "".join(character for character in text if not category(character).startswith("P"))
    return " ".join(_ARTICLE.sub(" ", text).split())


def exact(predicted: str, gold_answers: Sequence[str]) -> float:
    return float(any(_words(predicted) == _words(gold) for gold in _or_empty(gold_answers)))


def overlap(predicted: str, gold_answers: Sequence[str]) -> float:
    """F1 of the words, with the best-matching gold answer."""
    return max(_f1(_words(predicted), _words(gold)) for gold in _or_empty(gold_answers))


def answer_figures(predictions: Sequence[str], gold_answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means of `exact` and `overlap` ("f1"); with unanswerable questions, also for each kind of question."""
    check_pairs(gold_answers, predictions)
    pairs = zip(predictions, gold_answers, strict=True)
    scores = np.array([(exact(predicted, gold), overlap(predicted, gold)) for predicted, gold in pairs])
    answerable = np.array([is_answerable(gold) for gold in gold_answers])
    figures = _means(scores, "")
    if not answerable.all():
        figures |= _means(scores[answerable], "_answerable") if answerable.any() else {}
        figures |= _means(scores[~answerable], "_unanswerable")
    return figures


def is_answerable(gold_answers: Sequence[str]) -> bool:
    return any(gold.strip() for gold in gold_answers)


def _means(scores: np.ndarray, ending: str) -> dict[str, float]:
    return {f"exact{ending}": float(scores[:, 0].mean()), f"f1{ending}": float(scores[:, 1].mean())}


def _or_empty(gold_answers: Sequence[str]) -> list[str]:
    """The gold answers that are not empty when normalized; without any, the empty answer."""
    return [gold for gold in gold_answers if normalized(gold)] or [""]


def _words(text: str) -> list[str]:
    return _CHARACTER.sub(r" \1 ", normalized(text)).split()


def _f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    return 2 * (Counter(predicted) & Counter(gold)).total() / (len(predicted) + len(gold))
