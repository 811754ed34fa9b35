"""Read labelled examples: rows of files, their columns, and the task's examples.

Rows that cannot be used are left out; rows with a fault that can be repaired are repaired. Both are counted by reason,
with the first place of each, and reported. It is an error if no row is left.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import InputError
from weft.progress import say
from weft.recipe.finetune import DataSection, Paths
from weft.sources.records import BadRecord, Record
from weft.sources.rows import read_rows
from weft.sources.standard_input import is_standard_input
from weft.tasks.example import Example, UnseenLabel, Unusable
from weft.tasks.labelled.columns import COLUMN_ROLES, RoleColumns, find_columns
from weft.tasks.labelled.label_names import with_names
from weft.tasks.task import Task
from weft.tokens.keyed_shuffle import KeyedShuffle

_SAMPLE = 200  # rows from which columns are inferred
_MOST_REASONS = 50
_LABELS_SHOWN = 20  # in a message


@dataclass
class Problems:
    """What is wrong with rows: each reason with its count and first place."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, reason: str, place: str) -> None:
        if reason not in self.found and len(self.found) >= _MOST_REASONS:
            reason = "has another problem"
        count, first = self.found.get(reason, (0, place))
        self.found[reason] = (count + 1, first)

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.found.values())

    def sentences(self) -> list[str]:
        """Each begins with a place."""
        return [
            f"{place} {reason}" + (f" ({count:,} of this kind)" if count > 1 else "") + "."
            for reason, (count, place) in self.found.items()
        ]

    def nothing_left(self, where: str) -> str:
        return f"No row of {where} can be used: {self.sentences()[0]}"


@dataclass(frozen=True)
class LabelledSplit:
    where: str
    examples: list[Example]
    problems: Problems
    unseen: list[Example] = field(default_factory=list)  # their labels are not in the training data
    unseen_labels: Problems = field(default_factory=Problems)

    @property
    def judged(self) -> list[Example]:
        """The examples of an evaluation. Those with unseen labels count as wrong, whatever the prediction."""
        return [*self.examples, *self.unseen]

    def unseen_sentence(self) -> str:
        return (
            f"{len(self.unseen):,} of the {len(self.judged):,} examples of {self.where} have labels that are not in "
            f"the training data. They count as wrong predictions. The first: {self.unseen_labels.sentences()[0]}"
        )

    @cached_property
    def mended(self) -> Problems:
        """What was repaired in the examples."""
        found = Problems()
        for example in self.examples:
            for reason in example.repairs:
                found.add(reason, example.place)
        return found


def paths_of(given: Paths, base: Path) -> list[Path]:
    return [base / path for path in ([given] if isinstance(given, str) else given)]


def open_rows(paths: Sequence[Path], data: DataSection) -> Iterator[Record | BadRecord]:
    place = paths[0] if len(paths) == 1 else paths
    return read_rows(place, encoding=data.encoding, header=data.columns, format=data.format)


def named(paths: Sequence[Path]) -> str:
    return ", ".join("standard input" if is_standard_input(path) else path.name or str(path) for path in paths)


def columns_of(
    rows: Iterator[Record | BadRecord],
    task: Task | type[Task],
    named_columns: Mapping[str, Any],
    where: str,
    *,
    with_gold: bool = True,
) -> tuple[RoleColumns, list[str], Iterator[Record | BadRecord]]:
    """The column of each role, sentences about guesses, and the rows from the start."""
    sample, good = _sample(rows, where)
    left_out = () if with_gold else task.gold_roles
    wanted = [COLUMN_ROLES[role] for role in task.roles if role not in left_out]
    needed = {role: column for role, column in named_columns.items() if role not in (*left_out, *task.optional_roles)}
    columns, guesses = find_columns(good, wanted, needed, where)
    for role in task.optional_roles:
        column = named_columns.get(role, role)
        if column not in columns.values() and any(column in row.values for row in good):
            columns[role] = column
        elif role in named_columns:
            raise InputError(f"{where} has no column {column!r}, which the recipe names as the {role}.")
    return columns, guesses, chain(sample, rows)


def _sample(rows: Iterator[Record | BadRecord], where: str) -> tuple[list[Record | BadRecord], list[Record]]:
    """The first rows up to some that are readable, and the readable ones."""
    sample: list[Record | BadRecord] = []
    while more := list(islice(rows, _SAMPLE)):
        sample += more
        if good := [row for row in more if isinstance(row, Record)]:
            return sample, good
    problems = Problems()
    for row in sample:
        assert isinstance(row, BadRecord)
        problems.add(row.reason, row.place)
    raise InputError(problems.nothing_left(where))


def values_of(row: Record, columns: RoleColumns) -> dict[str, Any]:
    return {
        role: [row.values.get(name) for name in column] if isinstance(column, tuple) else row.values.get(column)
        for role, column in columns.items()
    }


def form_of(kind: type[Task], paths: Sequence[Path], data: DataSection) -> type[Task]:
    """Another form of the task if the recipe names one of its columns, or the data has one, such as lists of messages;
    columns of the usual form that the recipe names decide against it.
    """
    names = data.named_columns()
    if (role := next((role for role in kind.form_roles if role in names), None)) is not None:
        return kind.form_with(role)
    if not kind.form_roles or any(role in names for role in kind.roles):
        return kind
    _, good = _sample(open_rows(paths, data), named(paths))
    for role in kind.form_roles:
        if any(isinstance(good[0].values.get(name), list) for name in COLUMN_ROLES[role].synonyms):
            return kind.form_with(role)
    return kind


def first_label(paths: Sequence[Path], data: DataSection, kind: type[Task]) -> Any:
    """The first label in the data; None if the task has no labels."""
    if "label" not in kind.roles:
        return None
    columns, _, rows = columns_of(open_rows(paths, data), kind, data.named_columns(), named(paths))
    for row in rows:
        with suppress(Unusable):  # counted when the row is read again
            label = with_names(values_of(row, columns), data.labels)["label"] if isinstance(row, Record) else None
            if label not in (None, ""):
                return label
    return None


def read_split(task: Task, paths: Sequence[Path], data: DataSection) -> LabelledSplit:
    """Every usable example of these files. Guesses of columns are printed."""
    where, problems = named(paths), Problems()
    columns, guesses, rows = columns_of(open_rows(paths, data), task, data.named_columns(), where)
    for guess in guesses:
        say(guess)
    examples = []
    for row in rows:
        if isinstance(row, BadRecord):
            problems.add(row.reason, row.place)
            continue
        try:
            example = task.example(with_names(values_of(row, columns), data.labels), with_gold=True)
        except Unusable as reason:
            problems.add(str(reason), row.place)
            continue
        group = row.values.get(task.group_column) if task.group_column else None
        examples.append(replace(example, place=row.place, group=group if isinstance(group, str) else ""))
    if not examples:
        raise InputError(problems.nothing_left(where))
    return LabelledSplit(where, examples, problems)


def checked_split(task: Task, split: LabelledSplit) -> LabelledSplit:
    """Normalized examples, those with unseen labels apart. Raises InputError if no other is left."""
    kept, unseen, unseen_labels = [], [], Problems()
    for example in task.normalized(split.examples):
        try:
            task.check(example)
        except UnseenLabel as reason:
            unseen_labels.add(str(reason), example.place)
            unseen.append(example)
        except Unusable as reason:
            split.problems.add(str(reason), example.place)
        else:
            kept.append(example)
    if not kept:
        known = ", ".join(task.labels[:_LABELS_SHOWN]) + (" …" if len(task.labels) > _LABELS_SHOWN else "")
        problems = unseen_labels if unseen_labels.count else split.problems
        raise InputError(f"{problems.nothing_left(split.where)} Known labels: {known}.")
    return LabelledSplit(split.where, kept, split.problems, unseen, unseen_labels)


def some_of(examples: Sequence[Example], count: int | None, seed: int) -> list[Example]:
    """At most `count` examples, drawn at random, in their order."""
    if count is None or count >= len(examples):
        return list(examples)
    picked = np.sort(KeyedShuffle(len(examples), seed)[np.arange(count)])
    return [examples[i] for i in picked]
