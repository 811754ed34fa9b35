"""Words and tags of a row.

Words are a list, or a text that a cutter cuts into words (`cutting`); a text with a text of tags is cut at its spaces.
Tags are a list of the same length, or entities by characters: {"start": 3, "end": 8, "label": "PER"}, or CLUENER's
{"name": {"彭小军": [[0, 2]]}} (ends inclusive).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from weft.metrics.entities import Entity, tags_of
from weft.tasks.cutting import Cutter
from weft.tasks.example import Unusable
from weft.tasks.labels import read_label, refuse_surrogates

_SPACES = Cutter("spaces")
OVERLAP = "has overlapping entities, which tags cannot express (the longest is kept)"
WIDENED = "has an entity that begins or ends inside a word (the whole word is used)"
Tagged = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # words, tags, repairs
_LabelledSpan = tuple[int, int, str]  # first character, end (exclusive), kind


def read_words(value: Any, cutter: Cutter) -> tuple[str, ...]:
    words = tuple(value) if isinstance(value, list | tuple) else None
    if isinstance(value, str):
        words = cutter.words(value)
    if words is None or not all(isinstance(word, str) for word in words):
        raise Unusable("has no words" if value is None else "has words that are not a list of texts")
    if not words:
        raise Unusable("has no words")
    refuse_surrogates(" ".join(words))
    return words


def read_tagged(words: Any, tags: Any, cutter: Cutter) -> Tagged:
    if isinstance(words, str) and not _are_tags(tags):
        return _from_entities(words, list(_places(tags)), cutter)
    found = read_words(words, _SPACES)
    tags = tags.split() if isinstance(tags, str) else tags
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) and tag.strip() for tag in tags):
        raise Unusable("has no tags" if tags is None else "has tags that are not a list of names such as B-PER")
    if len(tags) != len(found):
        raise Unusable(f"has {len(found)} words but {len(tags)} tags")
    return found, tuple(tags), ()


def places_of(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """The characters of each word in the text that the words were cut from."""
    found, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def _are_tags(tags: Any) -> bool:
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
        raise Unusable("has entities of an unknown form; give start, end and label of each") from None


def _from_entities(text: str, places: Sequence[_LabelledSpan], cutter: Cutter) -> Tagged:
    found = cutter.places(text)
    if not found:
        raise Unusable("has an empty text")
    spans, widened = set(), 0
    for start, end, kind in places:
        inside = [number for number, (begin, stop) in enumerate(found) if begin < end and stop > start]
        if not inside or not 0 <= start < end <= len(text):
            raise Unusable(f"has an entity at characters {start} to {end}, where the text has no word")
        widened += found[inside[0]][0] < start or found[inside[-1]][1] > end
        spans.add(Entity(inside[0], inside[-1] + 1, kind))
    kept = _without_overlap(sorted(spans))
    words = tuple(text[start:end] for start, end in found)
    repairs = (OVERLAP,) * (len(spans) - len(kept)) + (WIDENED,) * widened
    return words, tuple(tags_of(kept, len(found))), repairs


def _without_overlap(spans: Sequence[Entity]) -> list[Entity]:
    """Of overlapping entities the longest, or the first if they are equally long."""
    kept: list[Entity] = []
    for span in spans:
        if kept and span.start < kept[-1].end:
            if span.end - span.start > kept[-1].end - kept[-1].start:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
