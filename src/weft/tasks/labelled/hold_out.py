"""Hold out a part of the training data for validation, without leaks.

Examples are in one group if they share a text (the context of questions; either side of a pair) or an article, or if
the text of one contains that of the other, as SST-2's sentences contain its phrases. A group is held out as a whole. A
phrase in texts of several groups ("a good film") would merge them all, so it links nothing and stays in training.
Groups are drawn by the seed, stratified by label.
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

_SHARE_HELD_OUT, _MOST_HELD_OUT = 0.1, 2000  # of the training examples; examples
_LARGEST = 0.2  # share of the examples in a group that is held out, at most
_MOST_OUTER = 50  # texts that contain a phrase; one in more texts is common


@dataclass(frozen=True)
class ExampleGroups:
    of_example: np.ndarray  # the number of each example's group
    common: np.ndarray  # bool: a phrase that texts of several groups contain


@dataclass(frozen=True)
class HeldOut:
    kept: list[int]  # for training
    held: list[int]
    groups: int  # held out
    phrases: int  # common phrases in training that held-out texts contain
    leaking: int = 0  # held-out examples that share a text with training, where no grouping avoids it

    def sentence(self, where: str) -> str:
        total = len(self.held) + len(self.kept)
        sentence = (
            f"No validation data is given, so {len(self.held):,} of the {total:,} examples of {where} are held out."
        )
        if self.leaking:
            return (
                f"{sentence} Nearly all examples share texts, so {self.leaking:,} of these share one with training: "
                "their scores are too high. Give validation data (finetune.data.validation)."
            )
        if self.groups < len(self.held):
            sentence += f" Examples that share a text stay together, in {self.groups:,} groups."
        if self.phrases:
            sentence += (
                f" {self.phrases:,} short or common phrases stay in training, although held-out texts contain them."
            )
        return sentence


def hold_out(task: Task, examples: Sequence[Example], seed: int, where: str) -> HeldOut:
    if len(examples) < 2:
        raise InputError(f"{where} has a single usable example, so none can be held out for validation.")
    count = min(_MOST_HELD_OUT, max(1, round(len(examples) * _SHARE_HELD_OUT)))
    groups, texts, numbers = _grouped(task, examples)
    labels = [_label(task, example) for example in examples]
    chosen = _draw(groups, labels, count, seed)
    if not chosen:  # nearly all examples are in one group
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
    """The groups, the distinct texts, and the number of each example's first text."""
    several = [task.compared_texts(example) for example in examples]
    counts = np.asarray([len(texts) for texts in several])
    numbers, texts = number_texts([text for each in several for text in each])
    first = numbers[np.cumsum(counts) - counts]
    # Texts are linked by examples that have several, and by articles.
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
    # A short phrase joins the group whose texts contain it, if it is a single one.
    lowest, highest = np.full(len(texts), len(texts)), np.full(len(texts), -1)
    for inside, around in index.matches(texts, short=True, same=True):
        np.minimum.at(lowest, inside, groups[around])
        np.maximum.at(highest, inside, groups[around])
    common |= (highest >= 0) & (lowest != highest)
    groups = np.where((highest >= 0) & (lowest == highest), lowest, groups)
    return ExampleGroups(groups[first], common[first]), texts, first


def _components(count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The connected components of a graph: for each node, the lowest node of its component."""
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
    """Groups with about `count` examples, stratified by label as far as possible. Empty if all are too large."""
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
    for even in (True, False):  # first stratified by label, then whatever fits
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
    """How many training texts are contained in a held-out text."""
    is_held, is_kept = (np.isin(np.arange(len(texts)), side) for side in (held, kept))
    found = np.zeros(len(texts), bool)
    index = TextIndex.of(texts)
    for short in (False, True):
        for inner, outer in index.matches(texts, short=short, same=True):
            found[inner[is_kept[inner] & is_held[outer]]] = True
    return int(np.isin(kept, np.flatnonzero(found)).sum())
