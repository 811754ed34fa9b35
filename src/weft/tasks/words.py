"""Words and their tags out of a row.

Words are a list, or a text that is cut where its characters change their kind (Chinese characters stand alone); at its
spaces, if its tags are a text, too. Tags are a list of the same length, or entities with their places in the text:
{"start": 3, "end": 8, "label": "PER"}, or CLUENER's {"name": {"彭小军": [[0, 2]]}} (ends inclusive).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from weft.evaluate.characters import MARKS
from weft.evaluate.entities import Span, tags_of
from weft.tasks.labels import read_label, refuse_halves
from weft.tasks.task import Unusable

_CHINESE = r"\u3400-\u9fff\uf900-\ufaff"
_HAS_CHINESE = re.compile(f"[{_CHINESE}]")
WORD = re.compile(rf"[{_CHINESE}]|(?:[^\W{_CHINESE}]+[{MARKS}]*)+|[^\w\s]")
Place = tuple[int, int, str]  # first character, behind the last, kind


def read_words(value: Any, *, at_spaces: bool = False) -> tuple[str, ...]:
    words = tuple(value) if isinstance(value, list | tuple) else None
    if isinstance(value, str):
        words = tuple(value.split() if at_spaces else WORD.findall(value))
    if words is None or not all(isinstance(word, str) for word in words):
        raise Unusable("has no words" if value is None else "has words that are no list of texts")
    if not words:
        raise Unusable("has no words")
    refuse_halves(" ".join(words))
    return words


def read_tagged(words: Any, tags: Any) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """And how many entities are lost, as they overlap others: tags cannot say both."""
    if isinstance(words, str) and not _is_row_of_tags(tags):
        return _by_places(words, list(_places(tags)))
    found = read_words(words, at_spaces=isinstance(tags, str))
    tags = tags.split() if isinstance(tags, str) else tags
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Unusable("has no tags" if tags is None else "has tags that are no list of names, such as B-PER")
    if len(tags) != len(found):
        raise Unusable(f"has {len(found)} words but {len(tags)} tags")
    return found, tuple(tags), 0


def are_cut_at_spaces(cut: Sequence[tuple[tuple[str, ...], str]]) -> bool:
    """Whether words come from their texts in that way, and not in the usual one. Chinese whose characters are set apart
    is not meant to be: what is asked later has no spaces.
    """
    if not all(tuple(text.split()) == words for words, text in cut):
        return False
    chinese = [word for words, _ in cut for word in words if _HAS_CHINESE.search(word)]
    if chinese and all(len(word) == 1 for word in chinese):
        return False
    return any(tuple(WORD.findall(text)) != words for words, text in cut)


def places_of(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where the words that were cut from a text stand in it."""
    found, behind = [], 0
    for word in words:
        start = text.index(word, behind)
        behind = start + len(word)
        found.append((start, behind))
    return found


def _is_row_of_tags(tags: Any) -> bool:
    return isinstance(tags, str) or (
        isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) and bool(tags)
    )


def _places(entities: Any) -> Iterable[Place]:
    if entities is None:
        raise Unusable("has no entities")
    try:
        if isinstance(entities, dict):
            for kind, found in entities.items():
                for places in found.values():
                    yield from ((int(start), int(end) + 1, str(kind)) for start, end in places)
            return
        for entity in entities:
            if isinstance(entity, dict):
                kind = entity.get("label", entity.get("kind", entity.get("type", entity.get("entity"))))
                yield int(entity["start"]), int(entity["end"]), read_label(kind)
            else:
                start, end, kind = entity
                yield int(start), int(end), read_label(kind)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise Unusable("has entities in a form that is not known; give start, end and label of each") from None


def _by_places(text: str, places: Sequence[Place]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    found = [(match.start(), match.end()) for match in WORD.finditer(text)]
    if not found:
        raise Unusable("has an empty text")
    spans = set()
    for start, end, kind in places:
        inside = [number for number, (begin, stop) in enumerate(found) if begin < end and stop > start]
        if not inside or not 0 <= start < end <= len(text):
            raise Unusable(f"has an entity at {start} to {end}, where its text has no word")
        spans.add(Span(inside[0], inside[-1] + 1, kind))
    kept = _apart(sorted(spans))
    words = tuple(text[start:end] for start, end in found)
    return words, tuple(tags_of(kept, len(found))), len(spans) - len(kept)


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Of entities that overlap, the longer stays; of equals, the first."""
    kept: list[Span] = []
    for span in spans:
        if kept and span.start < kept[-1].end:
            if span.end - span.start > kept[-1].end - kept[-1].start:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
