"""The data of a recipe: training, validation and test examples, and the task with its labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.progress import say
from weft.recipe.finetune import FinetuneSection
from weft.tasks.catalog import TASKS
from weft.tasks.example import Example
from weft.tasks.labelled.data import (
    LabelledSplit,
    Problems,
    checked_split,
    first_label,
    form_of,
    paths_of,
    read_split,
    some_of,
)
from weft.tasks.labelled.hold_out import hold_out
from weft.tasks.labelled.overlap import find_overlap
from weft.tasks.task import Task

SHOWN_PROBLEMS, SHOWN_SHARES = 5, 8  # in the log: bad rows of a split, classes


@dataclass(frozen=True)
class Splits:
    train: LabelledSplit
    validation: LabelledSplit
    test: LabelledSplit | None
    notes: tuple[str, ...] = ()  # how many were held out, and which overlaps there are

    @property
    def judged_on(self) -> LabelledSplit:
        return self.test or self.validation

    def by_use(self) -> dict[str, LabelledSplit]:
        """Keys: train, validation, test. Not file names: two folders may have files of the same name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}


def read_data(section: FinetuneSection, base: Path, known: Task | None = None) -> tuple[Task, Splits]:
    """The task with the labels of its training data, and the examples of each split. `known`: the task of a model that
    was tuned for it, whose labels stay.
    """
    data = section.data
    assert data.train is not None
    paths = paths_of(data.train, base)
    kind = form_of(TASKS[section.task], paths, data)
    task = kind.from_section(section, first_label(paths, data, kind)) if known is None else known
    train = read_split(task, paths, data)
    train = replace(train, examples=some_of(train.examples, data.limit, section.seed))
    others = {}
    for name, said in (("validation", data.validation), ("test", data.test)):
        others[name] = None if said is None else read_split(task, paths_of(said, base), data)
    # Before some are held out: a rare label may be among these only.
    if known is None:
        task = task.with_labels_from(train.examples)
        task.check_metric()
    validation, notes = others["validation"], []
    if validation is None:
        train, validation, note = _held_out(task, train, section.seed)
        notes.append(note)
    if known is None:
        task = task.fitted(train.examples)
    splits = [train, validation, *([others["test"]] if others["test"] else [])]
    splits = [checked_split(task, split) for split in splits]
    for split in splits:
        _say_split(task, split)
    named = {"train": splits[0], **dict(zip(("validation", "test"), splits[1:], strict=False))}
    if others["validation"] is None:  # held out from train, without overlap
        del named["validation"]
    notes += find_overlap(task, named) if len(named) > 1 else []
    for note in notes:
        say(note)
    return task, Splits(splits[0], splits[1], splits[2] if len(splits) > 2 else None, tuple(notes))


def _held_out(task: Task, train: LabelledSplit, seed: int) -> tuple[LabelledSplit, LabelledSplit, str]:
    found = hold_out(task, train.examples, seed, train.where)
    kept, held = ([train.examples[number] for number in numbers] for numbers in (found.kept, found.held))
    rest = LabelledSplit(f"{train.where} (held out)", held, Problems())
    return replace(train, examples=kept), rest, found.sentence(train.where)


def _say_split(task: Task, split: LabelledSplit) -> None:
    left_out = f", {split.problems.count:,} left out" if split.problems.count else ""
    say(f"{split.where}: {len(split.examples):,} examples{left_out}.")
    say_problems(split)
    if counts := count_classes(task, split.examples):
        total = sum(counts.values())
        shown = ", ".join(f"{label} {count / total:.0%}" for label, count in counts.most_common(SHOWN_SHARES))
        say(f"  {shown}{' …' if len(counts) > SHOWN_SHARES else ''}")


def say_problems(split: LabelledSplit) -> None:
    for title, found in (("Left out", split.problems), ("Repaired", split.mended)):
        for sentence in found.sentences()[:SHOWN_PROBLEMS]:
            say(f"{title}: {sentence}")


def count_classes(task: Task, examples: Sequence[Example]) -> Counter[str]:
    return Counter(label for example in examples for label in task.classes(example))
