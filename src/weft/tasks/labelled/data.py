"""Examples out of files: rows, their columns, and what a task makes of them.

A row that cannot be used is left out; what can be mended is. Both are counted by the reason, with the first place where
it happened, and the report tells them. Nothing left at all is an error.
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

_SAMPLE = 200  # rows that columns are guessed by
_MOST_REASONS = 50
_SHOWN = 20  # labels in a message


@dataclass
class Problems:
    """What is wrong with rows, how often, and where first."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, reason: str, place: str) -> None:
        if reason not in self.found and len(self.found) >= _MOST_REASONS:
            reason = "has another fault"
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
    unseen: list[Example] = field(default_factory=list)  # with labels that training never had
    strange: Problems = field(default_factory=Problems)  # which those are

    @property
    def judged(self) -> list[Example]:
        """Whoever has a label that training never had is answered wrongly, and counts as such."""
        return [*self.examples, *self.unseen]

    def unseen_sentence(self) -> str:
        return (
            f"{len(self.unseen):,} of the {len(self.judged):,} examples of {self.where} have a label that training "
            f"never had. It counts as answered wrongly. The first: {self.strange.sentences()[0]}"
        )

    @cached_property
    def mended(self) -> Problems:
        """What was wrong with examples and was put right."""
        found = Problems()
        for example in self.examples:
            for reason in example.repairs:
                found.add(reason, example.place)
        return found


def paths_of(said: Paths, base: Path) -> list[Path]:
    return [base / path for path in ([said] if isinstance(said, str) else said)]


def open_rows(paths: Sequence[Path], data: DataSection) -> Iterator[Record | BadRecord]:
    place = paths[0] if len(paths) == 1 else paths
    return read_rows(place, encoding=data.encoding, header=data.columns, format=data.format)


def named(paths: Sequence[Path]) -> str:
    return ", ".join("standard input" if is_standard_input(path) else path.name or str(path) for path in paths)


def columns_of(
    rows: Iterator[Record | BadRecord],
    task: Task | type[Task],
    said: Mapping[str, Any],
    where: str,
    *,
    with_gold: bool = True,
) -> tuple[RoleColumns, list[str], Iterator[Record | BadRecord]]:
    """Which column plays which role, what to tell of guesses, and the rows again."""
    sample, good = _sample(rows, where)
    unasked = () if with_gold else task.gold_roles
    wanted = [COLUMN_ROLES[role] for role in task.roles if role not in unasked]
    needed = {role: column for role, column in said.items() if role not in (*unasked, *task.optional_roles)}
    columns, guesses = find_columns(good, wanted, needed, where)
    for role in task.optional_roles:
        column = said.get(role, role)
        if column not in columns.values() and any(column in row.values for row in good):
            columns[role] = column
        elif role in said:
            raise InputError(f"{where} has no column {column!r}, which is to be the {role}.")
    return columns, guesses, chain(sample, rows)


def _sample(rows: Iterator[Record | BadRecord], where: str) -> tuple[list[Record | BadRecord], list[Record]]:
    """The first rows, as far as there are some to guess by among them; and these."""
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


def first_label(paths: Sequence[Path], data: DataSection, kind: type[Task]) -> Any:
    """A look at the data before the task is known in full: the first label there is."""
    if "label" not in kind.roles:
        return None
    columns, _, rows = columns_of(open_rows(paths, data), kind, data.named_columns(), named(paths))
    for row in rows:
        with suppress(Unusable):  # which is counted when the row is read in earnest
            label = with_names(values_of(row, columns), data.labels)["label"] if isinstance(row, Record) else None
            if label not in (None, ""):
                return label
    return None


def read_split(task: Task, paths: Sequence[Path], data: DataSection) -> LabelledSplit:
    """Every example of these files that can be used. Columns that were guessed are said aloud."""
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
    """As the task learns it. What has a label that training never had is set apart."""
    kept, unseen, strange = [], [], Problems()
    for example in task.normalized(split.examples):
        try:
            task.check(example)
        except UnseenLabel as reason:
            strange.add(str(reason), example.place)
            unseen.append(example)
        except Unusable as reason:
            split.problems.add(str(reason), example.place)
        else:
            kept.append(example)
    if not kept:
        known = ", ".join(task.labels[:_SHOWN]) + (" …" if len(task.labels) > _SHOWN else "")
        problems = strange if strange.count else split.problems
        raise InputError(f"{problems.nothing_left(split.where)} Known are: {known}.")
    return LabelledSplit(split.where, kept, split.problems, unseen, strange)


def some_of(examples: Sequence[Example], count: int | None, seed: int) -> list[Example]:
    """At most so many, drawn evenly, in their order."""
    if count is None or count >= len(examples):
        return list(examples)
    picked = np.sort(KeyedShuffle(len(examples), seed)[np.arange(count)])
    return [examples[i] for i in picked]
