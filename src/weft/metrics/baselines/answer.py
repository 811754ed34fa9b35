"""Baseline for question answering: the sentence that overlaps most with the question, and the best run of words in it.

Overlapping words are weighted by idf, with the sentences of the context as documents. A candidate answer is a run of
words that are neither in the question nor function words. Runs of the expected kind score highest (who: a name; when: a
date; how many: a number), then runs near words of the question, then longer runs. There is no training.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.tokens.shards import split_sentences
from weft.words import places_of_words, words_of

_GRAMMAR = frozenset(
    "a an the of in on at by to for from with as and or but that which who whom whose is are was were be been being "
    "has have had do does did it its he she they his her their this these those not can could will would may also "
    "into than then when where while after before during between through about over under such other some most more "
    "all s 的 了 是 在 和 与 及 也 就 都 而 于 着 被 把 从 到 为 之 其 这 那 有 将 以 并".split()
)
_INNER = frozenset(("of", "the", "and"))  # function words inside a name: the University of Notre Dame
_NUMBER = (
    r"\d|\b(?i:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|[mb]illion|half)\b"
    "|[一二三四五六七八九十百千万亿两]"
)
_DATE = (
    r"\b\d{4}|January|February|March|April|May|June|July|August|September|October|November|December|century"
    r"|[\d一二三四五六七八九十〇零][年月日]|世纪"
)
_NAME = "^[A-Z]"
_HOW_MANY = r"\bhow (?:many|much|old|long|far|large|tall|high|big|often)\b|\bpercent|多少|几[个位年岁次名]|多[大长高远]"
_WHEN = r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade)\b|何时|什么时候|哪一?[年天日]"
_WHO = r"\bwh(?:o|om|ose|ere)\b"
_EXPECTED = tuple(  # the first pattern that matches the question decides
    (re.compile(question, re.IGNORECASE), re.compile(looks))
    for question, looks in ((_HOW_MANY, _NUMBER), (_WHEN, _DATE), (_WHO, _NAME))
)
# Runs of words end here, but not within 1,000 or twenty-one.
_BREAK = re.compile(r"\s[^\w\s]|[^\w\s]\s|[，。、；：！？（）《》「」“”…]")
_KIND_WEIGHT, _LENGTH_WEIGHT, _LONGEST_REWARDED = (
    4.0,
    0.3,
    4,
)  # weights of the expected kind and of each word; chosen on other articles of SQuAD


@dataclass(frozen=True)
class AnswerOverlap:
    def predict(self, contexts: Sequence[str], questions: Sequence[str]) -> list[str]:
        """Each answer as it occurs in its context; empty if the context has no words."""
        read = {context: AnswerContext(context) for context in dict.fromkeys(contexts)}
        return [
            best_run(read[context].sentence_for(question), question)
            for context, question in zip(contexts, questions, strict=True)
        ]


@dataclass(frozen=True)
class AnswerContext:
    text: str

    def sentence_for(self, question: str) -> str:
        """The sentence with the largest overlap with the question; on a tie, the first."""
        asked = _bag(question)
        shared = [sum(self._idf[word] for word in sorted(bag & asked)) for _, bag in self._sentences]
        return self._sentences[shared.index(max(shared))][0] if shared else ""

    @cached_property
    def _sentences(self) -> list[tuple[str, frozenset[str]]]:
        return [(sentence, bag) for sentence in split_sentences(self.text) if (bag := _bag(sentence))]

    @cached_property
    def _idf(self) -> dict[str, float]:
        seen = Counter(word for _, bag in self._sentences for word in bag)
        return {word: math.log((len(self._sentences) + 1) / count) for word, count in seen.items()}


def best_run(sentence: str, question: str) -> str:
    """The run of words with the highest score; the whole sentence if there is none."""
    asked = _bag(question)
    places = [slice(*place) for place in places_of_words(sentence)]
    words = [sentence[place].lower() for place in places]
    echoes = [at for at, word in enumerate(words) if word in asked - _GRAMMAR]
    looks = next((looks for asks, looks in _EXPECTED if asks.search(question)), None)

    def worth(run: range) -> float:
        near = sum(1 / min(abs(at - run[0]), abs(at - run[-1])) for at in echoes)
        fits = looks is not None and looks.search(_text(sentence, places, run)) is not None
        return _KIND_WEIGHT * fits + near + _LENGTH_WEIGHT * min(len(run), _LONGEST_REWARDED)

    runs = list(_runs(sentence, places, words, asked))
    return _text(sentence, places, max(runs, key=worth)) if runs else sentence.strip()


def _runs(sentence: str, places: Sequence[slice], words: Sequence[str], asked: frozenset[str]) -> Iterator[range]:
    """Runs of words that are neither in the question nor function words (unless inside a name)."""
    signs, end = "", 0
    for place, word in zip(places, words, strict=True):
        apart = _BREAK.search(sentence[end : place.start]) is not None
        if word in asked or word in _GRAMMAR:
            signs += "o" if word in _INNER - asked and not apart else "."
        else:
            signs += "N" if apart else "n"
        end = place.stop
    return (range(*run.span()) for run in re.finditer("[Nn](?:o*n)*", signs))


def _text(sentence: str, places: Sequence[slice], run: range) -> str:
    return sentence[places[run[0]].start : places[run[-1]].stop]


def _bag(text: str) -> frozenset[str]:
    return frozenset(words_of(text.lower()))
