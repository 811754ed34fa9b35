"""Characters that are words by themselves. Chinese and Japanese are written without spaces, so what English metrics
count in words is counted in characters there.
"""

from collections.abc import Iterable

from weft.words import characters_in, words_of


def are_mostly_cjk(texts: Iterable[str]) -> bool:
    """Whether such characters outnumber the words between them."""
    characters = words = 0
    for text in texts:
        characters += (here := characters_in(text))
        words += len(words_of(text)) - here
    return characters > words
