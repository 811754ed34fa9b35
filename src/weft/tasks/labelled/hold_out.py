"""A part of the training data to validate on, of which training has seen nothing.

Examples are in one group if they share a text (the context of questions; either side of a pair), an article, or if the
text of one stands inside the other's, as the phrases of SST-2 do in its sentences. A group goes to one side as a whole.
A phrase that stands in texts of several groups would glue them all together ("a good film"), so it links nothing: it
stays in training, where it is no secret. Groups are drawn by the seed, so that the labels keep their shares.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import InputError
from weft.tasks.example import Example
from weft.tasks.labelled.containment import TextIndex, Texts, number_texts
from weft.tasks.task import Task
from weft.tokens.keyed_shuffle import KeyedShuffle

_HELD_OUT, _MOST_HELD_OUT = 0.1, 2000  # of train
_LARGEST = 0.2  # of the examples that a group may have to be held out
_MOST_OUTER = 50  # texts that a phrase may stand in before it is a common one


@dataclass(frozen=True)
class ExampleGroups:
    of_example: np.ndarray  # the number of each example's group
    common: np.ndarray  # bool: a phrase that stands in texts of several groups


@dataclass(frozen=True)
class HeldOut:
    kept: list[int]  # to learn from
    held: list[int]
    groups: int  # that were held out
    phrases: int  # in training that stand inside what is held out: common ones
    leaking: int = 0  # of what is held out, where no grouping leaves anything to learn from

    def sentence(self, where: str) -> str:
        total = len(self.held) + len(self.kept)
        said = f"No validation data is named, so {len(self.held):,} of the {total:,} examples of {where} are held out."
        if self.leaking:
            return (
                f"{said} Nearly all examples share their texts, so {self.leaking:,} of these share one with training: "
                "figures on them are too good. Name validation data (finetune.data.validation)."
            )
        if self.groups < len(self.held):
            said += f" Examples that share a text stay together: these are {self.groups:,} groups."
        if self.phrases:
            said += f" {self.phrases:,} short or common phrases stay in training, although texts held out have them."
        return said


def hold_out(task: Task, examples: Sequence[Example], seed: int, where: str) -> HeldOut:
    if len(examples) < 2:
        raise InputError(f"{where} has a single usable example: none is left to validate on.")
    count = min(_MOST_HELD_OUT, max(1, round(len(examples) * _HELD_OUT)))
    groups, texts, numbers = _grouped(task, examples)
    labels = [_label(task, example) for example in examples]
    chosen = _draw(groups, labels, count, seed)
    if not chosen:  # nearly all of it hangs together
        finer = ExampleGroups(number_texts([task.in_words(one) for one in examples])[0], np.zeros(len(examples), bool))
        chosen = _draw(finer, labels, count, seed)
        is_held = np.isin(finer.of_example, chosen)
        if not chosen:
            is_held[KeyedShuffle(len(examples), seed)[np.arange(count)]] = True
        shared = np.isin(groups.of_example[is_held], groups.of_example[~is_held])
        held, kept = np.flatnonzero(is_held).tolist(), np.flatnonzero(~is_held).tolist()
        return HeldOut(kept, held, len(chosen), 0, int(shared.sum()))
    is_held = np.isin(groups.of_example, chosen) & ~groups.common
    held, kept = np.flatnonzero(is_held).tolist(), np.flatnonzero(~is_held).tolist()
    phrases = _inside(texts, numbers[held], numbers[kept]) if task.contained_texts_leak else 0
    return HeldOut(kept, held, len(chosen), phrases)


def group_examples(task: Task, examples: Sequence[Example]) -> ExampleGroups:
    return _grouped(task, examples)[0]


def _grouped(task: Task, examples: Sequence[Example]) -> tuple[ExampleGroups, Texts, np.ndarray]:
    """And the different texts; the number of each example's first."""
    several = [task.compared_texts(example) for example in examples]
    counts = np.asarray([len(texts) for texts in several])
    numbers, texts = number_texts([text for each in several for text in each])
    first = numbers[np.cumsum(counts) - counts]
    # What links texts: the examples that have several, and the articles they are of.
    inner, outer = [numbers], [np.repeat(first, counts)]
    articles: dict[str, int] = {}
    for number, example in zip(first.tolist(), examples, strict=True):
        if example.group:
            inner.append(np.asarray([number]))
            outer.append(np.asarray([articles.setdefault(example.group, number)]))
    common = np.zeros(len(texts), bool)
    if not task.contained_texts_leak:
        groups = _components(len(texts), np.concatenate(inner), np.concatenate(outer))
        return ExampleGroups(groups[first], np.zeros(len(examples), bool)), texts, first
    index = TextIndex.of(texts)
    within = np.zeros(len(texts), np.int64)
    pairs = []
    for inside, around in index.matches(texts, short=False, same=True):
        inside, around = np.unique(np.stack([inside, around]), axis=1)
        within += np.bincount(inside, minlength=len(texts))
        pairs.append((inside, around))
    common |= within > _MOST_OUTER
    for inside, around in pairs:
        linked = ~common[inside]
        inner.append(inside[linked])
        outer.append(around[linked])
    groups = _components(len(texts), np.concatenate(inner), np.concatenate(outer))
    # A short phrase joins the group that it stands in, if it is one.
    lowest, highest = np.full(len(texts), len(texts)), np.full(len(texts), -1)
    for inside, around in index.matches(texts, short=True, same=True):
        np.minimum.at(lowest, inside, groups[around])
        np.maximum.at(highest, inside, groups[around])
    common |= (highest >= 0) & (lowest != highest)
    groups = np.where((highest >= 0) & (lowest == highest), lowest, groups)
    return ExampleGroups(groups[first], common[first]), texts, first


def _components(count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The connected components of a graph: of each node, the lowest that it hangs together with."""
    lowest = np.arange(count)
    while True:
        both = np.minimum(lowest[one], lowest[other])
        found = lowest.copy()
        np.minimum.at(found, one, both)
        np.minimum.at(found, other, both)
        np.minimum.at(found, lowest[one], both)
        np.minimum.at(found, lowest[other], both)
        found = found[found]
        if (found == lowest).all():
            return lowest
        lowest = found


def _label(task: Task, example: Example) -> str:
    classes = task.classes(example)
    return classes[0] if len(classes) == 1 else ""


def _draw(groups: ExampleGroups, labels: Sequence[str], count: int, seed: int) -> list[int]:
    """Groups that hold about `count` examples, with the labels in their shares as far as groups allow. None, if all are
    too large.
    """
    members: dict[int, list[int]] = {}
    for number, group in enumerate(groups.of_example.tolist()):
        if not groups.common[number]:
            members.setdefault(group, []).append(number)
    names = list(members)
    order = [names[i] for i in KeyedShuffle(len(names), seed)[np.arange(len(names))]] if names else []
    total = Counter(labels)
    left = {label: count * its / len(labels) for label, its in total.items()}
    chosen: list[int] = []
    held = 0
    for even in (True, False):  # at first as the labels are shared out, then whatever fits
        for group in order:
            rows = members[group]
            if held >= count or len(rows) >= 2 * (count - held) or held + len(rows) >= len(labels):
                continue
            counts = Counter(labels[row] for row in rows)
            wanted = sum(min(its, max(left[label], 0)) for label, its in counts.items())
            if even and 2 * wanted < len(rows):
                continue
            for label, its in counts.items():
                left[label] -= its
            chosen.append(group)
            held += len(rows)
        taken = set(chosen)
        order = [group for group in order if group not in taken] if even and held < count else []
    if not chosen and members:
        least = min(members, key=lambda group: len(members[group]))
        return [least] if len(members[least]) <= _LARGEST * len(labels) else []
    return chosen


def _inside(texts: Texts, held: np.ndarray, kept: np.ndarray) -> int:
    """How many texts of training stand in one that is held out."""
    is_held, is_kept = (np.isin(np.arange(len(texts)), side) for side in (held, kept))
    found = np.zeros(len(texts), bool)
    index = TextIndex.of(texts)
    for short in (False, True):
        for inner, outer in index.matches(texts, short=short, same=True):
            found[inner[is_kept[inner] & is_held[outer]]] = True
    return int(np.isin(kept, np.flatnonzero(found)).sum())
