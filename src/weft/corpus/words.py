"""Words, where they are written apart, and characters where they are not."""

import re
from collections.abc import Sequence

# Chinese and Japanese; Thai, Lao, Tibetan, Burmese and Khmer.
_ALONE = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
)
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")
_CHARACTER = re.compile(f"[{_ALONE}]")
TOKEN_BYTES, TOKEN_LETTERS = 4.3, 1.5  # in a token of a vocabulary of 32,000: of English; of Chinese, about
UNSPACED = frozenset(("zh", "ja", "th", "lo", "km", "my", "bo"))


def words_of(text: str) -> list[str]:
    """Runs of letters and digits; a character of a script without spaces is a word by itself."""
    return _WORD.findall(text)


def is_unspaced(words: Sequence[str]) -> bool:
    """Whether most of these words are characters of such a script."""
    return 2 * sum(len(word) == 1 and _CHARACTER.match(word) is not None for word in words[:1000]) > len(words[:1000])


def weight_of(text: str) -> int:
    """How much a text says, in letters: a Chinese character stands for about three."""
    return len(text) if text.isascii() else len(text) + 2 * len(_CHARACTER.findall(text))
