"""Chinese and Japanese have no spaces between words, so metrics count their characters instead of words."""

from collections.abc import Iterable

from weft.words import characters_in, words_of


def are_mostly_cjk(texts: Iterable[str]) -> bool:
    """Whether Chinese and Japanese characters outnumber the other words."""
    characters = words = 0
    for text in texts:
        characters += (here := characters_in(text))
        words += len(words_of(text)) - here
    return characters > words
