"""The data of a recipe: examples to learn from, to validate on, to be judged by; and the task with its labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.progress import say
from weft.recipe import FinetuneSection
from weft.tasks.catalog import TASKS, asked_task
from weft.tasks.data import Split, checked, first_label, hold_out, paths_of, read_split, some_of
from weft.tasks.task import Example, Task


@dataclass(frozen=True)
class Splits:
    train: Split
    validation: Split
    test: Split | None

    def by_use(self) -> dict[str, Split]:
        """Not by file: files of the same name may be in different folders."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}


def read_data(section: FinetuneSection, base: Path) -> tuple[Task, Splits]:
    """The examples of each split, and the task with the labels that it found."""
    data = section.data
    assert data.train is not None
    paths = paths_of(data.train, base)
    task = asked_task(section, first_label(paths, data, TASKS[section.task]))
    train = read_split(task, paths, data)
    train = replace(train, examples=some_of(train.examples, data.limit, section.seed))
    others = {}
    for name, said in (("validation", data.validation), ("test", data.test)):
        others[name] = None if said is None else read_split(task, paths_of(said, base), data)
    task = task.settle(train.examples)  # before some are held out: they may be all that have a rare label
    validation = others["validation"]
    if validation is None:
        train, validation = hold_out(train, section.seed)
        say(f"No validation data is named: {len(validation.examples):,} examples of {train.where} are held out.")
    splits = [train, validation, *([others["test"]] if others["test"] else [])]
    splits = [checked(task, split) for split in splits]
    for split in splits:
        _say_split(task, split)
    return task, Splits(splits[0], splits[1], splits[2] if len(splits) > 2 else None)


def _say_split(task: Task, split: Split) -> None:
    left_out = f", {split.problems.count:,} left out" if split.problems.count else ""
    say(f"{split.where}: {len(split.examples):,} examples{left_out}.")
    say_problems(split)
    if counts := count_classes(task, split.examples):
        total = sum(counts.values())
        shown = ", ".join(f"{label} {count / total:.0%}" for label, count in counts.most_common(8))
        say(f"  {shown}{' …' if len(counts) > 8 else ''}")


def say_problems(split: Split) -> None:
    for title, found in (("Left out", split.problems), ("Mended", split.mended)):
        for sentence in found.sentences()[:5]:
            say(f"{title}: {sentence}")


def count_classes(task: Task, examples: Sequence[Example]) -> Counter[str]:
    return Counter(label for example in examples for label in task.classes(example))
