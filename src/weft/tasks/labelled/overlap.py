"""Overlap between splits: test examples that are also in the training data measure memory."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from weft.tasks.example import Example
from weft.tasks.labelled.containment import TextIndex, number_texts
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.task import Task

_SHOWN = 60  # characters of an example in a message


def find_overlap(task: Task, splits: Mapping[str, LabelledSplit]) -> list[str]:
    """A sentence for each two splits and each kind of overlap, with the count and the first example."""
    uses = list(splits)
    examples = {use: splits[use].judged for use in uses}
    texts = {use: [task.compared_texts(one) for one in examples[use]] for use in uses}
    flat = [text for use in uses for each in texts[use] for text in each]
    numbers, known = number_texts(flat)
    ends = np.cumsum([sum(map(len, texts[use])) for use in uses])
    of_use = dict(zip(uses, np.split(numbers, ends[:-1]), strict=True))
    has = {use: np.isin(np.arange(len(known)), of_use[use]) for use in uses}
    pairs = [np.zeros((2, 0), np.int64)]
    if task.contained_texts_leak:
        index = TextIndex.of(known)
        pairs += [np.stack(both) for both in index.matches(known, short=False, same=True)]
    inner, outer = np.concatenate(pairs, axis=1)
    wholes, _ = number_texts([task.in_words(one) for use in uses for one in examples[use]])
    ends = np.cumsum([len(examples[use]) for use in uses])
    whole = dict(zip(uses, np.split(wholes, ends[:-1]), strict=True))
    found = []
    for first, second in combinations(uses, 2):
        same = np.isin(whole[second], whole[first])
        if task.contained_texts_leak:
            is_within = np.zeros(len(known), bool)
            is_within[inner[has[second][inner] & has[first][outer]]] = True
            is_within[outer[has[second][outer] & has[first][inner]]] = True
            like = is_within[of_use[second]] & ~same
            how = (
                "is contained in a text of {}, or contains one",
                "are contained in texts of {}, or contain one",
            )
        else:
            groups = {one.group for one in examples[first]} - {""}
            shared = has[first][of_use[second]]
            counts = np.asarray([len(each) for each in texts[second]])
            like = np.logical_or.reduceat(shared, np.cumsum(counts) - counts) & ~same
            like |= np.asarray([one.group in groups for one in examples[second]]) & ~same
            what = "a context or an article" if task.group_column else "a text"
            how = (f"shares {what} with {{}}", f"share {what} with {{}}")
        for rows, kind in ((same, ("is also in {}", "are also in {}")), (like, how)):
            if rows.any():
                how_it_overlaps = kind[int(rows.sum() > 1)].format(f"the {first} data")
                found.append(_sentence(task, second, how_it_overlaps, examples[second], rows))
    return found


def _sentence(task: Task, use: str, how_it_overlaps: str, examples: Sequence[Example], rows: np.ndarray) -> str:
    example = examples[int(np.flatnonzero(rows)[0])]
    text = " ".join(task.in_words(example).split())
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + " …"
    return (
        f"Overlap: {int(rows.sum()):,} of the {len(rows):,} {use} examples {how_it_overlaps}. "
        f"The first is {example.place}: {text!r}."
    )
