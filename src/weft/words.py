"""Words in every script: one definition for deduplication, test sets, quality rules, baselines and metrics.

A word is a run of letters, digits and combining marks (Unicode categories L, N and M). Python's `\\w` has no marks, so
it would break Hindi at its vowel signs. In scripts without spaces a single letter with its marks is a word: a character
of Chinese or Japanese, a letter of Thai, Lao, Khmer or Burmese. In Tibetan a syllable is a word. The two joiners
(U+200C, U+200D) do not end a word.
"""

import re
import unicodedata
from typing import Any

import regex

# Scripts without spaces: a word is about two characters, or about four letters.
_CHARACTERS = r"\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Bopomofo}\p{Tangut}\p{Nushu}\p{Khitan_Small_Script}"
_LETTERS = (
    r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Javanese}\p{Balinese}\p{Tai_Tham}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Viet}"
)
CHARACTER = rf"(?=[\p{{L}}\p{{Nl}}])[{_CHARACTERS}]"  # a pattern for the regex package
_LETTER = rf"(?=\p{{L}})[{_LETTERS}]"
_ALONE = rf"(?=[\p{{L}}\p{{Nl}}])[{_CHARACTERS}{_LETTERS}]\p{{M}}*+"


def _run(inside: str) -> str:
    """A pattern for a run. A mark without a letter is kept; a mark on a symbol belongs to the symbol, as in ❤️."""
    joined = rf"{inside}*+(?:[\u200c\u200d]++{inside}++)*+"
    return rf"(?:(?!\p{{M}}){inside}|(?<![\p{{S}}\p{{M}}])\p{{M}}){joined}"


_ANY = r"[\p{L}\p{N}\p{M}]"
_SPACED = rf"(?:(?![{_CHARACTERS}{_LETTERS}]){_ANY}|[\p{{Nd}}\p{{No}}\p{{M}}])"
_SYMBOL = r"\p{S}\p{M}*+"
# Three pairs of patterns, from the fastest to the most general: ASCII, scripts with spaces, all scripts.
_ASCII_WORD, _ASCII_BOTH = re.compile("[A-Za-z0-9]+"), re.compile("[A-Za-z0-9]+|[$+<=>^`|~]")
_SPACED_WORD, _SPACED_BOTH = (regex.compile(pattern) for pattern in (_run(_ANY), rf"{_run(_ANY)}|{_SYMBOL}"))
_WORD, _BOTH = (regex.compile(rf"{_ALONE}|{_run(_SPACED)}{more}") for more in ("", rf"|{_SYMBOL}"))
# Blocks that contain scripts without spaces: twenty times as fast as script properties.
_MAY_BE_ALONE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1b7f\u2e80-\uabff\uf900-\ufaff\uff60-\uff9f"
    "\U00016fe0-\U0001b2ff\U00020000-\U0003ffff]"
)
_IS_CHARACTER, _IS_LETTER, _MARK = map(regex.compile, (CHARACTER, _LETTER, r"\p{M}"))
# Sentence-final punctuation (Sentence_Terminal) of scripts other than Latin and Chinese, and the Tibetan shad.
# Without the Burmese comma U+104A and without double and compatibility forms (U+203C, U+FF0E …).
ENDS_OF_SENTENCES = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d\u0f0e\u104b\u1362\u1367\u1368"
    "\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf"
    "\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\uff61"
)  # inside the brackets of a pattern
TOKEN_BYTES, TOKEN_LETTERS = 4.3, 1.5  # per token of a vocabulary of 32,000: bytes of English, characters of Chinese


def words_of(text: str) -> list[str]:
    return _words_in(text).findall(text)


def places_of_words(text: str) -> list[tuple[int, int]]:
    """The start and end of each word of `words_of`."""
    return [found.span() for found in _words_in(text).finditer(text)]


def words_and_symbols(text: str) -> list[str]:
    """Words, and each symbol (mathematical signs, currencies, emoji); no punctuation."""
    if text.isascii():
        return _ASCII_BOTH.findall(text)
    return (_BOTH if may_be_unspaced(text) else _SPACED_BOTH).findall(text)


def _words_in(text: str) -> Any:
    return _ASCII_WORD if text.isascii() else _WORD if may_be_unspaced(text) else _SPACED_WORD


def may_be_unspaced(text: str) -> bool:
    """A fast check: False if the text has no letter of a script without spaces."""
    return not text.isascii() and _MAY_BE_ALONE.search(text) is not None


def kind_of(word: str) -> int:
    """0: a word; 1: a character of Chinese or Japanese; 2: a letter of Thai, Lao, Khmer, Burmese …"""
    return 0 if word.isascii() else 1 if _IS_CHARACTER.match(word) else 2 if _IS_LETTER.match(word) else 0


def folded(text: str) -> str:
    """Removes differences of case and white space only. Texts with equal results count as the same text."""
    plain = unicodedata.normalize("NFC", text).casefold()
    return " ".join(unicodedata.normalize("NFC", plain).split())


def unspaced_share(text: str) -> tuple[float, float]:
    """The share of words that are Chinese or Japanese characters, and that are letters of Thai, Khmer …"""
    if not may_be_unspaced(text) or not (words := words_of(text)):
        return 0.0, 0.0
    characters, letters = len(_IS_CHARACTER.findall(text)), len(_IS_LETTER.findall(text))
    return characters / len(words), letters / len(words)


def is_unspaced(text: str) -> bool:
    """Whether most of its words are single characters or letters of scripts without spaces."""
    return sum(unspaced_share(text)) > 0.5


def characters_in(text: str) -> int:
    """The number of Chinese and Japanese characters."""
    return 0 if text.isascii() else len(_IS_CHARACTER.findall(text))


def letters_of(text: str) -> int:
    """The number of letters without marks: é and दि are one, a Korean syllable as many as its components."""
    return len(text) if text.isascii() else len(_MARK.sub("", unicodedata.normalize("NFD", text)))


def weight_of(text: str) -> int:
    """The length of a text in letters; a Chinese character counts as three."""
    return len(text) + 2 * characters_in(text)
