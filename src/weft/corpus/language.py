"""Identifies the language of a text, as a two-letter code of py3langid."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from weft.errors import RecipeError, needs, suggest

_SAMPLE_CHARACTERS = 400  # from the middle: texts begin with titles, names and menus
_LEAST_PROBABILITY = 0.5
_MERGED = {"yue": "zh", "wuu": "zh"}  # same characters; Tang poems are classified as yue
# Frequent in English and in no other language written in ASCII.
_ENGLISH = frozenset("the and that with this have are from they which been would there their what were you".split())
_IDEOGRAPH = re.compile(r"[\u3400-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af\u1100-\u11ff]")  # kana and hangul


def language_of(text: str) -> str | None:
    """The language code; None if it is uncertain."""
    start = max(0, (len(text) - _SAMPLE_CHARACTERS) // 2)
    part = text[start : start + _SAMPLE_CHARACTERS]
    if evident := _evident(part):
        return evident
    language, probability = _identifier().classify(part)
    return _MERGED.get(language, str(language)) if probability >= _LEAST_PROBABILITY else None


def _evident(text: str) -> str | None:
    """English by frequent words, Chinese by its characters. py3langid takes a hundred times as long."""
    if text.isascii():
        words = text.lower().split()
        return "en" if sum(map(_ENGLISH.__contains__, words)) > 0.12 * len(words) else None
    chinese = len(_IDEOGRAPH.findall(text))
    return "zh" if chinese > 0.6 * len(text) and _KANA_OR_HANGUL.search(text) is None else None


def check_languages(languages: Sequence[str]) -> None:
    for language in languages:
        if language not in (known := _identifier().labels):
            shown = suggest(language, known) or " (use two letters, such as en or zh)"
            raise RecipeError(f"corpus.build.languages: {language!r} is not a language code{shown}.")


@cache
def _identifier() -> Any:
    langid = needs("py3langid.langid", "corpus", "to identify languages")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
