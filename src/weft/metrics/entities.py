"""Named entities: spans of words, encoded as one tag per word.

In IOB2 each entity begins with B-. In IOB1 it does so only after another entity of the same type. BIOES (BILOU, BMES)
also marks the last word and entities of one word. All schemes are decoded by the rules of conlleval and seqeval: B-
and S- begin an entity, I- and E- begin one if none of their type is open, E- and S- end it. So every sequence of tags
can be decoded. The scheme only decides which tags are invalid, and these are counted.

An entity is right if its words and its type are. Counts are kept per sentence and type, so that the bootstrap can draw
sentences.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from weft.metrics.classes import ClassScore, class_score, ratio
from weft.metrics.examples import check_pairs

Scheme = Literal["iob1", "iob2", "bioes", "plain"]  # plain: one class per word, as parts of speech; no entities
Tags = Sequence[str]

_TAG = re.compile(r"O|[BIOESLUM]-.+", re.DOTALL)
_BARE = frozenset("BIESLUM")
UNNAMED = "entity"  # the type of entities tagged B, I, O without a type
_MOST_INVALID_SHARE = 0.01  # more tags that are not entity tags mean that the tags are plain; fewer are misspelt
_SAME = {"L": "E", "U": "S", "M": "I"}  # BILOU's last and unit, BMES's middle


class Entity(NamedTuple):
    start: int
    end: int  # exclusive
    kind: str


def guess_scheme(sequences: Iterable[Tags]) -> Scheme:
    """The scheme with the fewest invalid tags; plain if many tags are not entity tags."""
    sequences = [list(tags) for tags in sequences]
    marked = [tag for tags in sequences for tag in tags if tag != "O"]
    if sum(not is_entity_tag(tag) for tag in marked) > _MOST_INVALID_SHARE * len(marked):
        return "plain"
    sequences = [tags for tags in sequences if all(map(is_entity_tag, tags))]
    seen = {tag for tags in sequences for tag in tags}
    if any(_parted(tag)[0] in "ES" for tag in seen):
        return "bioes"
    iob1, iob2 = (sum(_count_invalid(tags, scheme) for tags in sequences) for scheme in ("iob1", "iob2"))
    return "iob1" if iob1 < iob2 else "iob2"


def are_bare(sequences: Iterable[Tags]) -> bool:
    """Whether the tags are entity tags without a type: B, I, O or B, M, E, S. One-letter class names contain other
    letters, or neither B nor I.
    """
    marked = Counter(tag for tags in sequences for tag in tags if tag != "O")
    strange = sum(count for tag, count in marked.items() if tag not in _BARE)
    return bool({"B", "I"} & set(marked)) and strange <= _MOST_INVALID_SHARE * marked.total()


def with_kind(tags: Tags) -> list[str]:
    """Adds the type `UNNAMED` to bare tags."""
    return [f"{tag}-{UNNAMED}" if tag in _BARE else tag for tag in tags]


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is O or an entity tag such as B-PER."""
    return _TAG.fullmatch(tag) is not None


def entities_in(tags: Tags) -> list[Entity]:
    spans = []
    start, kind = 0, ""  # of the open entity; no type: none is open
    for place, (mark, own) in enumerate([*map(_parted, tags), ("O", "")]):
        if kind and (mark in "BSO" or own != kind):
            spans.append(Entity(start, place, kind))
            kind = ""
        if mark != "O" and not kind:
            start, kind = place, own
        if mark in "ES":
            spans.append(Entity(start, place + 1, kind))
            kind = ""
    return spans


def tags_of(spans: Iterable[Entity], length: int) -> list[str]:
    """The tags of entities in IOB2."""
    tags = ["O"] * length
    for start, end, kind in spans:
        if not 0 <= start < end <= length or any(tag != "O" for tag in tags[start:end]):
            raise ValueError(f"the entity {start}–{end} is empty, outside of {length} words or overlaps another")
        tags[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return tags


def repaired_tags(tags: Tags, scheme: Scheme) -> tuple[list[str], int]:
    """The same entities in IOB2, and the number of invalid tags. Plain tags are returned unchanged."""
    if scheme == "plain":
        return list(tags), 0
    return tags_of(entities_in(tags), len(tags)), _count_invalid(tags, scheme)


def entity_figures(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, float]:
    """Precision, recall and F1 over all entities, and the mean F1 over types ("f1_macro")."""
    counts = entity_counts(gold, predicted)[1].sum(0)
    return {name: float(value) for name, value in entity_figures_from_counts(counts).items()}


def per_type(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, ClassScore]:
    kinds, counts = entity_counts(gold, predicted)
    return {
        kind: class_score(right, right + extra, right + missed)
        for kind, (right, extra, missed) in zip(kinds, counts.sum(0).tolist(), strict=True)
    }


def entity_counts(gold: Sequence[Tags], predicted: Sequence[Tags]) -> tuple[list[str], np.ndarray]:
    """The types that occur, and counts (sentences, types, 3): true positives, false positives, false negatives."""
    _check_lengths(gold, predicted)
    pairs = [(set(entities_in(ours)), set(entities_in(theirs))) for ours, theirs in zip(predicted, gold, strict=True)]
    kinds = sorted({span.kind for ours, theirs in pairs for span in ours | theirs})
    column = {kind: number for number, kind in enumerate(kinds)}
    counts = np.zeros((len(pairs), len(kinds), 3), np.int64)
    for row, (ours, theirs) in enumerate(pairs):
        for place, spans in enumerate((ours & theirs, ours - theirs, theirs - ours)):
            for span in spans:
                counts[row, column[span.kind], place] += 1
    return kinds, counts


def entity_figures_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of shape (…) from counts of shape (…, types, 3). "f1_macro" is the mean over the types that occur."""
    right, extra, missed = np.moveaxis(counts, -1, 0)
    f1 = ratio(2 * right, 2 * right + extra + missed)
    occurring = (counts.sum(-1) > 0).sum(-1)
    right, extra, missed = (part.sum(-1) for part in (right, extra, missed))
    return {
        "precision": ratio(right, right + extra),
        "recall": ratio(right, right + missed),
        "f1": ratio(2 * right, 2 * right + extra + missed),
        "f1_macro": ratio(f1.sum(-1), occurring),
    }


def tag_accuracy(gold: Sequence[Tags], predicted: Sequence[Tags]) -> float:
    """The share of words with the right tag."""
    _check_lengths(gold, predicted)
    right = sum(a == b for row, other in zip(gold, predicted, strict=True) for a, b in zip(row, other, strict=True))
    return float(ratio(right, sum(map(len, gold))))


def _check_lengths(gold: Sequence[Tags], predicted: Sequence[Tags]) -> None:
    check_pairs(gold, predicted)
    for number, (theirs, ours) in enumerate(zip(gold, predicted, strict=True)):
        if len(theirs) != len(ours):
            raise ValueError(f"sentence {number} has {len(theirs)} gold tags, but {len(ours)} predicted ones")


def _parted(tag: str) -> tuple[str, str]:
    """The prefix as one of BIOES, and the type; without a type it is _, as in seqeval."""
    return _SAME.get(tag[0], tag[0]), tag[2:] or "_"


def _count_invalid(tags: Tags, scheme: Scheme) -> int:
    """Counts invalid tags: an I- that begins an entity (IOB2), a B- that need not be one (IOB1), a B- or I- without an
    end and an I- or E- without a beginning (BIOES), and prefixes that the scheme does not have.
    """
    outside = ("O", "")
    parted = [outside, *map(_parted, tags), outside]
    invalid = 0
    for (before, kind_before), (mark, kind), (after, kind_after) in zip(parted, parted[1:], parted[2:], strict=False):
        continues = kind_before == kind and before in "BI"
        if scheme == "bioes":
            ends = kind_after == kind and after in "IE"
            invalid += (mark in "IE" and not continues) or (mark in "BI" and not ends) or mark not in "BIOES"
        elif scheme == "iob2":
            invalid += (mark == "I" and not continues) or mark not in "BIO"
        else:
            invalid += (mark == "B" and not continues) or mark not in "BIO"
    return invalid
