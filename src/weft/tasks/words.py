"""Words and their tags out of a row.

Words are a list, or a text that a cutter cuts (`cutting`); at its spaces, if its tags are a text, too. Tags are a list
of the same length, or entities with their places in the text: {"start": 3, "end": 8, "label": "PER"}, or CLUENER's
{"name": {"彭小军": [[0, 2]]}} (ends inclusive).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from weft.metrics.entities import Entity, tags_of
from weft.tasks.cutting import Cutter
from weft.tasks.example import Unusable
from weft.tasks.labels import read_label, refuse_halves

_SPACES = Cutter("spaces")
OVERLAP = "has entities that overlap, which tags cannot say: the longer was kept, of equals the first"
WIDENED = "has an entity that begins or ends inside of a word: the whole word was taken"
Tagged = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # words, tags, what was mended
_LabelledSpan = tuple[int, int, str]  # first character, behind the last, kind


def read_words(value: Any, cutter: Cutter) -> tuple[str, ...]:
    words = tuple(value) if isinstance(value, list | tuple) else None
    if isinstance(value, str):
        words = cutter.words(value)
    if words is None or not all(isinstance(word, str) for word in words):
        raise Unusable("has no words" if value is None else "has words that are no list of texts")
    if not words:
        raise Unusable("has no words")
    refuse_halves(" ".join(words))
    return words


def read_tagged(words: Any, tags: Any, cutter: Cutter) -> Tagged:
    if isinstance(words, str) and not _is_row_of_tags(tags):
        return _by_places(words, list(_places(tags)), cutter)
    found = read_words(words, _SPACES)
    tags = tags.split() if isinstance(tags, str) else tags
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Unusable("has no tags" if tags is None else "has tags that are no list of names, such as B-PER")
    if len(tags) != len(found):
        raise Unusable(f"has {len(found)} words but {len(tags)} tags")
    return found, tuple(tags), ()


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


def _places(entities: Any) -> Iterable[_LabelledSpan]:
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


def _by_places(text: str, places: Sequence[_LabelledSpan], cutter: Cutter) -> Tagged:
    found = cutter.places(text)
    if not found:
        raise Unusable("has an empty text")
    spans, widened = set(), 0
    for start, end, kind in places:
        inside = [number for number, (begin, stop) in enumerate(found) if begin < end and stop > start]
        if not inside or not 0 <= start < end <= len(text):
            raise Unusable(f"has an entity at {start} to {end}, where its text has no word")
        widened += found[inside[0]][0] < start or found[inside[-1]][1] > end
        spans.add(Entity(inside[0], inside[-1] + 1, kind))
    kept = _apart(sorted(spans))
    words = tuple(text[start:end] for start, end in found)
    mended = (OVERLAP,) * (len(spans) - len(kept)) + (WIDENED,) * widened
    return words, tuple(tags_of(kept, len(found))), mended


def _apart(spans: Sequence[Entity]) -> list[Entity]:
    """Of entities that overlap, the longer stays; of equals, the first."""
    kept: list[Entity] = []
    for span in spans:
        if kept and span.start < kept[-1].end:
            if span.end - span.start > kept[-1].end - kept[-1].start:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
