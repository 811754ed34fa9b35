"""Quality rules with thresholds. The first rule that a text breaks is the reason for dropping it.

The rules are those of MassiveText (Rae et al. 2021, appendix A1.1), which most open corpora use. Words are separated by
spaces. In scripts without spaces a character (Chinese, Japanese) or a letter (Thai, Khmer …) counts as a word, with
other thresholds. The script is detected from the text, because its language may be unknown or wrong.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weft.corpus.ngrams import Numbers
from weft.splitmix64 import GOLDEN_GAMMA
from weft.words import letters_of, unspaced_share, words_of

_BULLETS = ("•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–", "-", "*", "·")
_ELLIPSES = ("...", "…", "……", "[…]", "[...]")
_SYMBOLS = ("#", "...", "…")
_DIGIT = re.compile(r"\d")
_DIGITS = "0123456789"
_WITHOUT_LETTER = re.compile(r"(?<!\S)(?:[^\w\s]|[\d_])+(?!\S)")  # a word without a letter
_STOP_WORDS = {
    "en": "the be to of and that have with",
    "de": "der die und in den von zu das mit sich",
    "fr": "de la le et les des en un une que",
    "es": "de la que el en y a los se del",
    "it": "di e il la che in a per un è",
    "pt": "de a o que e do da em um para",
    "nl": "de van het een en in is dat op te",
    "pl": "i w na z się do nie że to jest",
    "ru": "и в не на я что с по это к",
    "zh": "的 是 了 在 不 有 和 我 这 他",
    "ja": "の に は を た が で て と し",
}
_STOP_WORD_SETS = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}
Units = Literal["words", "characters", "letters"]
_SAMPLE_CHARACTERS = 4000  # of the middle, to detect the script


@dataclass(frozen=True)
class Thresholds:
    """None switches a rule off. Shares are upper bounds unless noted."""

    least_words: int = 50
    most_words: int = 10_000_000  # MassiveText's 100,000 would drop most books
    word_length: tuple[float, float] | None = (3.0, 10.0)  # mean
    symbols: float | None = 0.1  # hashes and ellipses per word
    digits: float | None = 0.3  # of all characters
    bullets: float | None = 0.9  # of lines that begin with a bullet
    ellipses: float | None = 0.3  # of lines that end with an ellipsis
    letters: float | None = 0.8  # of words that contain a letter; lower bound
    stop_words: int = 2  # fewest different ones, for languages with a list
    repeated_lines: float | None = 0.3
    repeated_line_text: float | None = 0.2  # of all characters
    repeated_paragraphs: float | None = 0.3
    repeated_paragraph_text: float | None = 0.2
    # (n, share of characters): of the most frequent n-gram, and of all repeated n-grams.
    common_rows: tuple[tuple[int, float], ...] = ((2, 0.20), (3, 0.18), (4, 0.16))
    repeated_rows: tuple[tuple[int, float], ...] = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))

    @classmethod
    def of(cls, language: str | None, units: Units = "words") -> "Thresholds":
        if units == "words":
            # 3 to 10 fits European languages. Korean words are shorter, Tamil words longer.
            return cls() if language in _STOP_WORD_SETS else cls(word_length=(2.0, 15.0))
        # A word is about two characters or four letters. Shorter n-grams of them repeat in any text.
        times = 2 if units == "characters" else 4
        return cls(
            least_words=50 * times,
            most_words=10_000_000 * times,
            word_length=None,
            letters=0.6,
            common_rows=tuple((times * length, share) for length, share in cls.common_rows),
            repeated_rows=tuple((times * length, share) for length, share in cls.repeated_rows),
        )


@dataclass(frozen=True)
class MeasuredText:
    """A text and what the rules need of it, computed on demand."""

    text: str
    language: str | None = None

    @cached_property
    def is_spaced(self) -> bool:
        return units_of(self.text) == "words"

    @cached_property
    def words(self) -> list[str]:
        return self.text.split() if self.is_spaced else words_of(self.text)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Characters of words before the first word, before the second … and in total."""
        return np.concatenate([[0], np.cumsum(np.fromiter(map(len, self.words), np.int64, len(self.words)))])

    def ngrams(self, lengths: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """For each length, in rising order, a hash of every n-gram of this length."""
        codes = np.fromiter(map(hash, self.words), np.int64, len(self.words)).view(np.uint64)
        mixed, length = codes, 1
        for wanted in sorted(lengths):
            while length < min(wanted, len(codes)):
                mixed = mixed[:-1] * np.uint64(GOLDEN_GAMMA) + codes[length:]  # modulo 2^64
                length += 1
            yield wanted, mixed if wanted <= len(codes) else codes[:0]

    @cached_property
    def lines(self) -> list[str]:
        return [line for line in self.text.split("\n") if line.strip()]

    @cached_property
    def paragraphs(self) -> list[str]:
        return [part for part in self.text.split("\n\n") if part.strip()]


def units_of(text: str) -> Units:
    """What counts as a word in this text."""
    start = max(0, (len(text) - _SAMPLE_CHARACTERS) // 2)
    characters, letters = unspaced_share(text[start : start + _SAMPLE_CHARACTERS])
    return "words" if characters + letters <= 0.5 else "characters" if characters >= letters else "letters"


def broken_rule(text: str, language: str | None = None, thresholds: Thresholds | None = None) -> str | None:
    """The name of the first rule that the text breaks; None if it breaks none. Cheap rules come first."""
    limits = thresholds or Thresholds.of(language, units_of(text))
    measured = MeasuredText(text, language)
    return next((name for name, breaks in RULES.items() if breaks(measured, limits)), None)


def _has_wrong_length(t: MeasuredText, limits: Thresholds) -> bool:
    return not limits.least_words <= len(t.words) <= limits.most_words


def _has_odd_words(t: MeasuredText, limits: Thresholds) -> bool:
    if limits.word_length is None:
        return False
    low, high = limits.word_length
    return not low <= letters_of("".join(t.words)) / max(len(t.words), 1) <= high


def _has_symbols(t: MeasuredText, limits: Thresholds) -> bool:
    return _exceeds(sum(map(t.text.count, _SYMBOLS)) / max(len(t.words), 1), limits.symbols)


def _has_digits(t: MeasuredText, limits: Thresholds) -> bool:
    count = sum(map(t.text.count, _DIGITS)) if t.text.isascii() else len(_DIGIT.findall(t.text))
    return _exceeds(count / max(len(t.text), 1), limits.digits)


def _is_a_list(t: MeasuredText, limits: Thresholds) -> bool:
    return _exceeds(_share(t.lines, lambda line: line.lstrip().startswith(_BULLETS)), limits.bullets)


def _is_cut_off(t: MeasuredText, limits: Thresholds) -> bool:
    return _exceeds(_share(t.lines, lambda line: line.rstrip().endswith(_ELLIPSES)), limits.ellipses)


def _has_few_letters(t: MeasuredText, limits: Thresholds) -> bool:
    if limits.letters is None:
        return False
    if not t.is_spaced:
        return _share(t.words, lambda word: any(map(str.isalpha, word))) < limits.letters
    return 1 - len(_WITHOUT_LETTER.findall(t.text)) / max(len(t.words), 1) < limits.letters


def _has_few_stop_words(t: MeasuredText, limits: Thresholds) -> bool:
    known = _STOP_WORD_SETS.get(t.language or "")
    return known is not None and len(known.intersection(map(str.lower, t.words))) < limits.stop_words


def _repeats_lines(t: MeasuredText, limits: Thresholds) -> bool:
    return _repeats(t.lines, t.text, limits.repeated_lines, limits.repeated_line_text)


def _repeats_paragraphs(t: MeasuredText, limits: Thresholds) -> bool:
    return _repeats(t.paragraphs, t.text, limits.repeated_paragraphs, limits.repeated_paragraph_text)


def _repeats(parts: list[str], text: str, most: float | None, most_text: float | None) -> bool:
    seen: set[str] = set()
    again = [part for part in parts if part in seen or seen.add(part)]  # type: ignore[func-returns-value]
    return _exceeds(len(again) / max(len(parts), 1), most) or _exceeds(
        sum(map(len, again)) / max(len(text), 1), most_text
    )


def _has_common_ngrams(t: MeasuredText, limits: Thresholds) -> bool:
    most = dict(limits.common_rows)
    for length, ngrams in t.ngrams(list(most)):
        again = _repeated(ngrams)
        if len(again) == 0:  # then no longer n-gram repeats either
            return False
        _, first, counts = np.unique(ngrams[again], return_index=True, return_counts=True)
        count = int(counts.max())
        place = int(again[first[counts == count].min()])
        spaces = length - 1 if t.is_spaced else 0
        if _exceeds(count * (int(t.ends[place + length] - t.ends[place]) + spaces) / len(t.text), most[length]):
            return True
    return False


def _repeats_ngrams(t: MeasuredText, limits: Thresholds) -> bool:
    most = dict(limits.repeated_rows)
    for length, ngrams in t.ngrams(list(most)):
        again = _repeated(ngrams)
        if len(again) == 0:
            return False
        if _repeated_text(ngrams, again, length, t.ends) > most[length] * len(t.text):
            return True
    return False


def repeated_text(words: Sequence[str], length: int) -> int:
    """Characters in repeated n-grams of `length` words. N-grams that are counted do not overlap."""
    measured = MeasuredText(" ".join(words))
    ((_, ngrams),) = measured.ngrams([length])
    return _repeated_text(ngrams, _repeated(ngrams), length, measured.ends)


def _repeated(ngrams: Numbers) -> NDArray[np.intp]:
    """The positions of n-grams that occur more than once: few, in most texts."""
    order = np.argsort(ngrams, kind="stable")
    same = ngrams[order[1:]] == ngrams[order[:-1]]
    return (
        np.sort(order[np.concatenate([same, [False]]) | np.concatenate([[False], same])]) if same.any() else order[:0]
    )


def _repeated_text(ngrams: Numbers, again: NDArray[np.intp], length: int, ends: NDArray[np.int64]) -> int:
    seen: set[int] = set()
    repeated = free = 0
    for place, ngram in zip(again.tolist(), ngrams[again].tolist(), strict=True):
        if place < free:  # inside one that was counted
            continue
        if ngram in seen:
            repeated += int(ends[place + length] - ends[place])
            free = place + length
        else:
            seen.add(ngram)
    return repeated


def _share(parts: Sequence[str], test: Callable[[str], bool]) -> float:
    return sum(map(test, parts)) / max(len(parts), 1)


def _exceeds(value: float, most: float | None) -> bool:
    return most is not None and value > most


RULES: dict[str, Callable[[MeasuredText, Thresholds], bool]] = {
    "length": _has_wrong_length,
    "word length": _has_odd_words,
    "symbols": _has_symbols,
    "digits": _has_digits,
    "a list": _is_a_list,
    "cut-off lines": _is_cut_off,
    "few letters": _has_few_letters,
    "few stop words": _has_few_stop_words,
    "repeated lines": _repeats_lines,
    "repeated paragraphs": _repeats_paragraphs,
    "common phrases": _has_common_ngrams,
    "repeated phrases": _repeats_ngrams,
}
