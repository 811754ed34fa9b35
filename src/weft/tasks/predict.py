"""`weft predict`: answers to texts, or to the rows of a file, one JSON line each, in their order.

A file is read, answered and written piece by piece, so memory stays flat; each piece is on the disk before the next
begins. Going on after an interruption counts the whole lines that were written and skips as many rows.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from weft.errors import InputError
from weft.folders import disk_errors
from weft.progress import Gauge
from weft.recipe import DataSection
from weft.tasks.columns import Columns
from weft.tasks.data import columns_of, named, open_rows, values_of
from weft.tasks.evaluation import Subject
from weft.tasks.rows import BadRow, Row
from weft.tasks.task import Example, Task, Unusable

PIECE = 2048  # rows
MOST_LINE = 2**26


def predict_texts(subject: Subject, texts: Sequence[Any], *, details: bool = False) -> list[dict[str, Any]]:
    """An answer to each: a text, a pair of texts, a list of words, or a dictionary by role."""
    task = subject.task
    examples = []
    for number, given in enumerate(texts):
        try:
            examples.append(task.example(_by_role(task, given), with_gold=False))
        except Unusable as reason:
            raise InputError(f"Text {number} {reason}.") from None
    answers = subject.answers(examples) if examples else []
    return [task.shown(one, answer, details=details) for one, answer in zip(examples, answers, strict=True)]


def is_alone(task: Task, texts: Any) -> bool:
    """Whether this is one example, not a list of them. A tuple of texts is one pair; so is a tuple of words."""
    return (
        isinstance(texts, str | dict | tuple)
        if len(task.roles) - len(task.golds) > 1
        else isinstance(texts, str | dict)
    )


def _by_role(task: Task, given: Any) -> dict[str, Any]:
    roles = [role for role in task.roles if role not in task.golds]
    if isinstance(given, dict):
        if missing := [role for role in roles if role not in given]:
            raise Unusable(f"has no {missing[0]}; {task.name} takes {', '.join(roles)}")
        return given
    if len(roles) == 1:
        return {roles[0]: given}
    if isinstance(given, str) or not isinstance(given, list | tuple) or len(given) != len(roles):
        raise Unusable(f"is no {' and '.join(roles)}: {task.name} takes {len(roles)} texts together")
    return dict(zip(roles, given, strict=True))


def predict_file(
    subject: Subject,
    paths: Sequence[Path],
    output: Path | None,
    data: DataSection,
    write: Callable[[str], None],
    *,
    details: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Every row of a file answered; a row that cannot be is a line that says why, so that lines stay in step."""
    if resume and output is None:
        raise InputError("--resume goes with --output: what was printed is not known any more.")
    columns, rows = columns_of(open_rows(paths, data), subject.task, data.columns_said(), named(paths), with_gold=False)
    done = 0
    if output is not None and output.exists():
        if not resume:
            raise InputError(f"{output} is there already: --resume goes on with it, or choose another.")
        done = _whole_lines(output)
        if len(list(islice(rows, done))) < done:
            raise InputError(f"{output} has {done:,} lines, more than {named(paths)} has rows: is it another's?")
    failed = 0
    size = sum(path.stat().st_size for path in paths if path.is_file())
    with _sink(output, write) as put, Gauge("Answering", size, "rows") as gauge:
        gauge.documents = done
        while piece := list(islice(rows, PIECE)):
            lines = list(_answered(subject, piece, columns, details=details))
            failed += sum("error" in line for line in lines)
            put("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
            gauge.add(len(piece), sum(_size(row) for row in piece))
    return {"rows": gauge.documents, "before": done, "failed": failed, "output": str(output) if output else None}


def _answered(
    subject: Subject, rows: Sequence[Row | BadRow], columns: Columns, *, details: bool
) -> Iterator[dict[str, Any]]:
    task = subject.task
    examples: list[Example] = []
    faults: dict[int, str] = {}
    for number, row in enumerate(rows):
        if isinstance(row, BadRow):
            faults[number] = f"{row.place} {row.reason}."
            continue
        try:
            examples.append(task.example(values_of(row, columns), with_gold=False))
        except Unusable as reason:
            faults[number] = f"{row.place} {reason}."
    answers = iter(zip(examples, subject.answers(examples) if examples else [], strict=True))
    for number in range(len(rows)):
        yield {"error": faults[number]} if number in faults else task.shown(*next(answers), details=details)


def _size(row: Row | BadRow) -> int:
    return sum(len(value) for value in row.values.values() if isinstance(value, str)) if isinstance(row, Row) else 1


def _whole_lines(file: Path) -> int:
    """How many there are; one that was cut off is taken away."""
    count = end = 0
    with disk_errors(file), file.open("r+b") as stream:
        while line := stream.readline(MOST_LINE):
            if not line.endswith(b"\n"):
                break
            count += 1
            end += len(line)
        stream.truncate(end)
    return count


@contextmanager
def _sink(output: Path | None, write: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    if output is None:
        yield write
        return
    with disk_errors(output):
        stream: TextIO = output.open("a", encoding="utf-8")
    with stream:

        def put(text: str) -> None:
            with disk_errors(output):
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())

        yield put
