"""The language a text is written in, as a code of two letters (py3langid's)."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from weft.errors import RecipeError, needs, suggest

ENOUGH = 400  # characters to look at; of the middle, since texts begin with titles, names and menus
UNSURE = 0.5


def language_of(text: str) -> str | None:
    """None if there is too little to tell by."""
    start = max(0, (len(text) - ENOUGH) // 2)
    language, probability = _identifier().classify(text[start : start + ENOUGH])
    return str(language) if probability >= UNSURE else None


def check_languages(languages: Sequence[str]) -> None:
    for language in languages:
        if language not in (known := _identifier().labels):
            shown = suggest(language, known) or " (two letters, as en or zh)"
            raise RecipeError(f"corpus.build.languages: {language!r} is not a language that can be told{shown}.")


@cache
def _identifier() -> Any:
    langid = needs("py3langid.langid", "corpus", "to tell languages apart")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
