"""What the splits that a user named have in common. A test that was learnt from measures memory."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from weft.tasks.containment import Index, number_texts
from weft.tasks.data import Split
from weft.tasks.task import Example, Task

SHOWN = 60  # characters of an example


def find_overlap(task: Task, splits: Mapping[str, Split]) -> list[str]:
    """A sentence for each two splits and each way in which they overlap, with a count and the first example."""
    uses = list(splits)
    examples = {use: splits[use].judged for use in uses}
    texts = {use: [task.compared(one) for one in examples[use]] for use in uses}
    flat = [text for use in uses for each in texts[use] for text in each]
    numbers, known = number_texts(flat)
    ends = np.cumsum([sum(map(len, texts[use])) for use in uses])
    of_use = dict(zip(uses, np.split(numbers, ends[:-1]), strict=True))
    has = {use: np.isin(np.arange(len(known)), of_use[use]) for use in uses}
    pairs = [np.zeros((2, 0), np.int64)]
    if task.compares_inside:
        index = Index.of(known)
        pairs += [np.stack(both) for both in index.matches(known, short=False, same=True)]
    inner, outer = np.concatenate(pairs, axis=1)
    found = []
    for first, second in combinations(uses, 2):
        whole = {_whole(task, one) for one in examples[first]}
        same = np.asarray([_whole(task, one) in whole for one in examples[second]])
        if task.compares_inside:
            is_within = np.zeros(len(known), bool)
            is_within[inner[has[second][inner] & has[first][outer]]] = True
            is_within[outer[has[second][outer] & has[first][inner]]] = True
            like = is_within[of_use[second]] & ~same
            how = "stand inside a text of, or around one of"
        else:
            groups = {one.group for one in examples[first]} - {""}
            shared = has[first][of_use[second]]
            counts = np.asarray([len(each) for each in texts[second]])
            like = np.logical_or.reduceat(shared, np.cumsum(counts) - counts) & ~same
            like |= np.asarray([one.group in groups for one in examples[second]]) & ~same
            how = "share a context or an article with" if task.grouped_by else "share a text with"
        for rows, kind in ((same, "are the same as one of"), (like, how)):
            if rows.any():
                found.append(_sentence(task, first, second, kind, examples[second], rows))
    return found


def _whole(task: Task, example: Example) -> str:
    return " ".join(task.in_words(example).casefold().split())


def _sentence(task: Task, first: str, second: str, kind: str, examples: Sequence[Example], rows: np.ndarray) -> str:
    example = examples[int(np.flatnonzero(rows)[0])]
    text = " ".join(task.in_words(example).split())
    text = text if len(text) <= SHOWN else text[:SHOWN] + " …"
    return (
        f"Overlap: {int(rows.sum()):,} of the {len(rows):,} {second} examples {kind} the {first} data. "
        f"The first is {example.place}: {text!r}."
    )
