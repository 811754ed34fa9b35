"""Cleans text: repairs encodings, normalizes Unicode, removes invisible characters, simplifies white space.

Only invisible characters are removed: control characters, zero-width spaces, soft hyphens, direction marks and
byte-order marks. The joiners stay: U+200D joins emoji, and U+200C is part of Persian spelling.
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
# A single space does not match: replacing each one by itself would take most of the time.
_OTHER_SPACES = r"\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SPACES = re.compile(f"[{_OTHER_SPACES}][ {_OTHER_SPACES}]*| [ {_OTHER_SPACES}]+")
_LINE_EDGES = re.compile(r" \n ?|\n ")
_GAPS = re.compile(r"\n{3,}")
# UTF-8 that was decoded as Latin-1 or Windows-1252, and HTML entities: a fast check before ftfy.
_MOJIBAKE = re.compile(r"[ÂÃÅÐÑâãïð][\x80-\xbf\u0152-\u2122]|&(?:#\d+|#x[\da-f]+|[a-z]{2,6});", re.IGNORECASE)


@dataclass(frozen=True)
class Cleaning:
    repair: bool = True  # mojibake and HTML entities
    form: Literal["NFC", "NFKC"] | None = "NFC"
    mask: bool = False  # personal data: see `masking`


@dataclass(frozen=True)
class Cleaned:
    text: str
    done: tuple[str, ...]  # the steps that changed it: repaired, normalised, invisible, spaces, masked


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
    if form := settings.form:  # after `invisible`, which may have separated a letter from its accent
        step("normalised", lambda t: unicodedata.normalize(form, t))
    step("spaces", _plain_spaces)
    if settings.mask:
        step("masked", mask)
    return Cleaned(text, tuple(done))


def _repair(text: str) -> str:
    if _MOJIBAKE.search(text) is None:  # a hundred times faster than ftfy, and most text is intact
        return text
    ftfy = needs("ftfy", "corpus", "to repair broken encodings")
    config = ftfy.TextFixerConfig(
        normalization=None, uncurl_quotes=False, fix_latin_ligatures=False, fix_character_width=False
    )
    return ftfy.fix_text(text, config)


def _plain_spaces(text: str) -> str:
    return _GAPS.sub("\n\n", _LINE_EDGES.sub("\n", _SPACES.sub(" ", text))).strip()
