"""F1 of tags from raw text: the text is cut into words by the model's cutter before it is tagged.

A model is used on raw text, but test data has words. So it is scored on both. From raw text, an entity is right if its
first and last character and its kind are right, a tagged word if its characters and its tag are (as in the CoNLL 2018
shared task; Zeman et al. 2018). A word that is cut wrongly counts as wrong.

Data without raw text is detokenized: no space before a comma or 's, none after an opening bracket, none in Chinese.
Joining all words with spaces would make cutting trivial.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex

from weft.metrics.bootstrap import Interval, sum_intervals
from weft.metrics.entities import entities_in, entity_figures_from_counts
from weft.tasks.cutting import CharSpan, Cut, Cutter
from weft.tasks.example import Example
from weft.words import CHARACTER

_CLOSING = re.compile(r"[)\]}>”,.;:!?%…，。；：！？、）》」』】]+|['’](?:s|m|d|ll|re|ve)|n['’]t", re.IGNORECASE)
_OPENING = re.compile(r"[(\[{<“‘¿¡$£€（《「『【]+")
_ALONE = regex.compile(CHARACTER)
_QUOTES = ('"', "'")

APART = "has words that differ from its text (the text is not used)"
_Item = tuple[int, int, str]  # first character, end, tag or kind


def aligned(words: Sequence[str], text: str) -> tuple[CharSpan, ...] | None:
    """The characters of each word in the text. None if words and text differ in more than white space."""
    found, place = [], 0
    for word in words:
        while place < len(text) and text[place].isspace():
            place += 1
        if not word or not text.startswith(word, place):
            return None
        found.append((place, place + len(word)))
        place += len(word)
    return None if text[place:].strip() else tuple(found)


def detokenized(words: Sequence[str]) -> str:
    """The words joined as text is written."""
    text, glued, opened = "", True, set[str]()
    for word in words:
        closes = _CLOSING.fullmatch(word) is not None
        opens = _OPENING.fullmatch(word) is not None
        if word in _QUOTES or word in ("``", "''"):
            closes, opens = (True, False) if word in opened or word == "''" else (False, True)
            opened = opened ^ {word} if word in _QUOTES else opened
        is_chinese = bool(text and (_ALONE.match(text[-1]) or _ALONE.match(word[:1])))
        text += word if glued or closes or is_chinese else f" {word}"
        glued = opens
    return text


def cut_of(example: Example) -> Cut | None:
    """The raw text of an example and the characters of its words. None if words and text differ."""
    if APART in example.repairs:
        return None
    text = raw_text(example)
    places = aligned(example.given, text)
    return None if places is None else Cut(text, places)


def raw_text(example: Example) -> str:
    """The text of the data, or the detokenized words. Chinese with spaces between characters is no natural text."""
    words = example.given
    if not example.text or (tuple(example.text.split()) == tuple(words) and _is_set_apart(words)):
        return detokenized(words)
    return example.text


def _is_set_apart(words: Sequence[str]) -> bool:
    chinese = [word for word in words if _ALONE.search(word)]
    return len(chinese) > 1 and all(len(word) == 1 for word in chinese)


@dataclass(frozen=True)
class FromRawText:
    f1: float
    interval: Interval
    facts: dict[str, Any]


def from_raw_text(
    cutter: Cutter,
    examples: Sequence[Example],
    tags: Sequence[Sequence[str]],
    gold: Sequence[Sequence[str]],
    answer: Callable[[Sequence[Example]], Sequence[Sequence[str]]],
    *,
    entities: bool,
) -> FromRawText | None:
    """F1 from raw text. None if no example has a raw text.

    `tags`: the predictions for the given words, reused where the cutter finds the same words. `answer` predicts the
    other sentences.
    """
    known = [(number, cut) for number, one in enumerate(examples) if (cut := cut_of(one)) is not None]
    if not known:
        return None
    places = {number: cutter.places(cut.text) for number, cut in known}
    anew = [(number, cut) for number, cut in known if places[number] != list(cut.places)]
    others = [Example(tuple(cut.text[a:b] for a, b in places[number]), None, text=cut.text) for number, cut in anew]
    predicted = dict(enumerate(tags)) | dict(
        zip((number for number, _ in anew), answer(others) if others else (), strict=True)
    )
    counts, both, of_all = np.zeros((len(known), 1, 3), np.int64), 0, 0
    for row, (number, cut) in enumerate(known):
        ours = set(_items(places[number], predicted[number], entities=entities))
        theirs = set(_items(cut.places, gold[number], entities=entities))
        counts[row, 0] = len(ours & theirs), len(ours - theirs), len(theirs - ours)
        both += len(set(places[number]) & set(cut.places))
        of_all += len(places[number]) + len(cut.places)
    given = sum(cut.text == examples[number].text for number, cut in known)
    facts = {
        "cut_by": cutter.in_words(),
        "text": "of the data" if given == len(known) else "words joined as text is written" if not given else "mixed",
        "sentences_rebuilt": round(1 - len(anew) / len(known), 4),
        "word_f1": round(2 * both / max(of_all, 1), 4),
        "sentences": len(known),
        "left_out": len(examples) - len(known),  # their words differ from their text
    }
    f1 = float(entity_figures_from_counts(counts.sum(0))["f1"])
    return FromRawText(f1, sum_intervals(counts, entity_figures_from_counts)["f1"], facts)


def _items(places: Sequence[CharSpan], tags: Sequence[str], *, entities: bool) -> list[_Item]:
    if not entities:
        return [(*place, tag) for place, tag in zip(places, tags, strict=True)]
    return [(places[start][0], places[end - 1][1], kind) for start, end, kind in entities_in(tags)]
