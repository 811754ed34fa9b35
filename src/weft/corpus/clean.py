"""Text made tidy: broken encodings repaired, one normal form, no invisible characters, plain white space.

What is removed never shows on a page: control characters, zero-width spaces, soft hyphens, marks of writing direction,
byte-order marks. The joiners stay: U+200D holds emoji together, U+200C spells Persian.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from weft.corpus.masking import mask
from weft.errors import needs

_NEWLINE = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    r"\ufff9-\ufffc\U000e0001]"
)
# A single space between words, which nearly all are, is no match: to replace each by itself takes most of the time.
_OTHER_SPACES = r"\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SPACES = re.compile(f"[{_OTHER_SPACES}][ {_OTHER_SPACES}]*| [ {_OTHER_SPACES}]+")
_LINE_EDGES = re.compile(r" \n ?|\n ")
_GAPS = re.compile(r"\n{3,}")
# What UTF-8 looks like when it was read as Latin-1 or Windows-1252: the first sieve before ftfy's own.
_MOJIBAKE = re.compile(r"[ÂÃÅÐÑâãïð][\x80-\xbf\u0152-\u2122]|&(?:#\d+|#x[\da-f]+|[a-z]{2,6});", re.IGNORECASE)


@dataclass(frozen=True)
class Cleaning:
    repair: bool = True  # mojibake and leftovers of HTML
    form: Literal["NFC", "NFKC"] | None = "NFC"
    mask: bool = False  # addresses and numbers of people: see `masking`


@dataclass(frozen=True)
class Cleaned:
    text: str
    done: tuple[str, ...]  # what changed it: repaired, normalised, invisible, spaces, masked


def clean(text: str, settings: Cleaning) -> Cleaned:
    done: list[str] = []

    def step(name: str, change: Callable[[str], str]) -> None:
        nonlocal text
        changed = change(text)
        if changed != text:
            done.append(name)
            text = changed

    if settings.repair:
        step("repaired", _repair)
    step("invisible", lambda t: _INVISIBLE.sub("", _NEWLINE.sub("\n", t)))
    if form := settings.form:  # now: an accent may have stood behind something invisible
        step("normalised", lambda t: unicodedata.normalize(form, t))
    step("spaces", _plain_spaces)
    if settings.mask:
        step("masked", mask)
    return Cleaned(text, tuple(done))


def _repair(text: str) -> str:
    if _MOJIBAKE.search(text) is None:  # a hundred times faster than to ask ftfy, and most text is whole
        return text
    ftfy = needs("ftfy", "corpus", "to repair broken encodings")
    config = ftfy.TextFixerConfig(
        normalization=None, uncurl_quotes=False, fix_latin_ligatures=False, fix_character_width=False
    )
    return ftfy.fix_text(text, config)


def _plain_spaces(text: str) -> str:
    return _GAPS.sub("\n\n", _LINE_EDGES.sub("\n", _SPACES.sub(" ", text))).strip()
