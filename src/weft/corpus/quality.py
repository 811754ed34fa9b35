"""Which texts are worth learning from: rules with thresholds, each of which says why a text goes.

The rules are those of MassiveText (Rae et al. 2021, appendix A1.1), which most open corpora use. Words are what stands
between spaces; where a script has none, a character (Chinese, Japanese) or a letter (Thai, Khmer …) stands for a word,
and the thresholds differ. That is told by the text itself: the language may be unknown, or guessed wrong.
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
_WITHOUT_LETTER = re.compile(r"(?<!\S)(?:[^\w\s]|[\d_])+(?!\S)")  # a word
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
_SAMPLE_CHARACTERS = 4000  # characters, of the middle, to tell the units by


@dataclass(frozen=True)
class Thresholds:
    """A share of None switches the rule off."""

    least_words: int = 50
    most_words: int = 10_000_000  # MassiveText's 100,000 would drop most books
    word_length: tuple[float, float] | None = (3.0, 10.0)  # on average
    symbols: float | None = 0.1  # hashes and ellipses, to words
    digits: float | None = 0.3  # of all characters
    bullets: float | None = 0.9  # of lines, that begin with one
    ellipses: float | None = 0.3  # of lines, that end in one
    letters: float | None = 0.8  # of words, that hold one; at the least
    stop_words: int = 2  # different ones at the least, where the language's are known
    repeated_lines: float | None = 0.3
    repeated_line_text: float | None = 0.2  # of all characters
    repeated_paragraphs: float | None = 0.3
    repeated_paragraph_text: float | None = 0.2
    # The commonest row of n words, and all rows of n words that came before: of all characters.
    common_rows: tuple[tuple[int, float], ...] = ((2, 0.20), (3, 0.18), (4, 0.16))
    repeated_rows: tuple[tuple[int, float], ...] = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))

    @classmethod
    def of(cls, language: str | None, units: Units = "words") -> "Thresholds":
        if units == "words":
            # 3 to 10 is what English has. Korean writes a syllable as one letter, Tamil strings suffixes together.
            return cls() if language in _STOP_WORD_SETS else cls(word_length=(2.0, 15.0))
        # Twice as many characters as words, four times as many letters; short rows of them repeat in any text.
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
    """A text and what the rules ask of it, found when it is asked."""

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
        """How many characters of words stand before the first, the second … and after the last."""
        return np.concatenate([[0], np.cumsum(np.fromiter(map(len, self.words), np.int64, len(self.words)))])

    def rows(self, lengths: Sequence[int]) -> Iterator[tuple[int, Numbers]]:
        """Rising lengths, each with a number for every row of so many words: equal rows have equal numbers."""
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
    """What stands for a word in this text."""
    start = max(0, (len(text) - _SAMPLE_CHARACTERS) // 2)
    characters, letters = unspaced_share(text[start : start + _SAMPLE_CHARACTERS])
    return "words" if characters + letters <= 0.5 else "characters" if characters >= letters else "letters"


def broken_rule(text: str, language: str | None = None, thresholds: Thresholds | None = None) -> str | None:
    """The first rule that the text breaks, in a word or two; None for a good text. The cheap rules come first."""
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


def _has_common_rows(t: MeasuredText, limits: Thresholds) -> bool:
    most = dict(limits.common_rows)
    for length, rows in t.rows(list(most)):
        again = _not_alone(rows)
        if len(again) == 0:  # and so neither is any longer row
            return False
        _, first, counts = np.unique(rows[again], return_index=True, return_counts=True)
        count = int(counts.max())
        place = int(again[first[counts == count].min()])
        spaces = length - 1 if t.is_spaced else 0
        if _exceeds(count * (int(t.ends[place + length] - t.ends[place]) + spaces) / len(t.text), most[length]):
            return True
    return False


def _repeats_rows(t: MeasuredText, limits: Thresholds) -> bool:
    most = dict(limits.repeated_rows)
    for length, rows in t.rows(list(most)):
        again = _not_alone(rows)
        if len(again) == 0:
            return False
        if _repeated_text(rows, again, length, t.ends) > most[length] * len(t.text):
            return True
    return False


def repeated_text(words: Sequence[str], length: int) -> int:
    """Characters in rows of so many words that came before; rows that are counted do not overlap."""
    measured = MeasuredText(" ".join(words))
    ((_, rows),) = measured.rows([length])
    return _repeated_text(rows, _not_alone(rows), length, measured.ends)


def _not_alone(rows: Numbers) -> NDArray[np.intp]:
    """The places of rows that there are several of: few, in most texts."""
    order = np.argsort(rows, kind="stable")
    same = rows[order[1:]] == rows[order[:-1]]
    return (
        np.sort(order[np.concatenate([same, [False]]) | np.concatenate([[False], same])]) if same.any() else order[:0]
    )


def _repeated_text(rows: Numbers, again: NDArray[np.intp], length: int, ends: NDArray[np.int64]) -> int:
    seen: set[int] = set()
    repeated = free = 0
    for place, row in zip(again.tolist(), rows[again].tolist(), strict=True):
        if place < free:  # in one that was counted
            continue
        if row in seen:
            repeated += int(ends[place + length] - ends[place])
            free = place + length
        else:
            seen.add(row)
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
    "common phrases": _has_common_rows,
    "repeated phrases": _repeats_rows,
}
