"""Characters that are words by themselves. Chinese and Japanese are written without spaces, so what English metrics
count in words is counted in characters there.
"""

from collections.abc import Iterable

from weft.words import characters_in, words_of

# Accents, vowel signs and joiners: parts of a word that are no letters by themselves.
MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963"
    "\u0971-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
    "\u1ab0-\u1aff\u200c\u200d\u20d0-\u20f0"
)


def are_mostly_cjk(texts: Iterable[str]) -> bool:
    """Whether such characters outnumber the words between them."""
    characters = words = 0
    for text in texts:
        characters += (here := characters_in(text))
        words += len(words_of(text)) - here
    return characters > words
