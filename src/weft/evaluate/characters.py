"""Characters that are words by themselves. Chinese and Japanese are written without spaces, so what English metrics
count in words is counted in characters there.
"""

import re
from collections.abc import Iterable

# 々 and 〇, kana, ideographs; to stand inside the brackets of a regular expression.
CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHARACTER = re.compile(f"[{CJK}]")
_WORD = re.compile(f"[^\\W_{CJK}]+")


def are_mostly_cjk(texts: Iterable[str]) -> bool:
    """Whether such characters outnumber the words between them."""
    characters = words = 0
    for text in texts:
        characters += len(_CHARACTER.findall(text))
        words += len(_WORD.findall(text))
    return characters > words
