"""`weft predict`: answers to texts, or to the rows of a file, one JSON line each, in their order.

A file is read, answered and written piece by piece, so memory stays flat; each piece is on the disk before the next
begins. Going on after an interruption counts the whole lines that were written and skips as many rows. Until all are
answered, a hidden file beside the answers keeps what was asked: nothing else is gone on with, and what is not ours is
not touched.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from weft.errors import InputError
from weft.folders import disk_errors, locked, read_json, sha256_of, to_json, write_file
from weft.progress import Gauge, say
from weft.recipe.finetune import DataSection
from weft.sources.archives import COMPRESSED
from weft.sources.places import Place, ending, locate
from weft.sources.records import BadRecord, Record
from weft.tasks.catalog import facts_of
from weft.tasks.judging.evaluation import say_cut
from weft.tasks.labelled.columns import RoleColumns
from weft.tasks.labelled.data import columns_of, named, open_rows, values_of
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Example, Task, Unusable

Write = Callable[[Sequence[dict[str, Any]]], None]
PIECE = 2048  # rows


def predict_texts(model: LoadedModel, texts: Sequence[Any], *, details: bool = False) -> list[dict[str, Any]]:
    """An answer to each: a text, a pair of texts, a list of words, or a dictionary by role."""
    task = model.required_task
    examples = []
    for number, given in enumerate(texts):
        try:
            examples.append(task.example(_by_role(task, given), with_gold=False))
        except Unusable as reason:
            raise InputError(f"Text {number} {reason}.") from None
    answers = model.answers(examples) if examples else []
    return [task.shown(one, answer, details=details) for one, answer in zip(examples, answers, strict=True)]


def is_alone(task: Task, texts: Any) -> bool:
    """Whether this is one example, not a list of them. A tuple of texts is a pair; of words, a sentence."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"predict takes texts, not {type(texts).__name__}.")
    takes_tuple = len(task.roles) - len(task.gold_roles) > 1 or "words" in task.roles
    return isinstance(texts, str | dict) or (takes_tuple and isinstance(texts, tuple))


def _by_role(task: Task, given: Any) -> dict[str, Any]:
    roles = [role for role in task.roles if role not in task.gold_roles]
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
    model: LoadedModel,
    file: Path,
    output: Path | None,
    data: DataSection,
    write: Write,
    *,
    details: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Every row of a file answered; a row that cannot be is a line that says why, so that lines stay in step."""
    if output is None:
        if resume:
            raise InputError("--resume goes with --output: what was printed is not known any more.")
        return _answer_file(model, file, None, data, write, details=details, resume=False)
    if not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: there is no folder {output.parent}.")
    lock = output.with_name(f".{output.name}.lock")
    with locked(lock, f"{output} is being written by another process."):
        try:
            return _answer_file(model, file, output, data, write, details=details, resume=resume)
        finally:
            lock.unlink(missing_ok=True)


def _answer_file(
    model: LoadedModel,
    file: Path,
    output: Path | None,
    data: DataSection,
    write: Write,
    *,
    details: bool,
    resume: bool,
) -> dict[str, Any]:
    said = data.named_columns()
    columns, guesses, rows = columns_of(
        open_rows([file], data), model.required_task, said, named([file]), with_gold=False
    )
    for guess in guesses:
        say(guess)
    done, passed, source = 0, 0, locate(file)
    if output is not None:
        done = _begin(output, source.path, _asked(model, source, columns, data, details=details), resume=resume)
        found = 0
        for row in islice(rows, done):
            found, passed = found + 1, passed + _size(row)
        if found < done or (not _note(output).is_file() and next(rows, None) is not None):
            raise InputError(f"{output} has {done:,} lines, which are not the answers to {file}: choose another file.")
    failed = cut = 0
    is_plain = source.path.is_file() and not source.is_archive and ending(source.path.name) not in COMPRESSED
    size = source.path.stat().st_size if is_plain else 0
    with _sink(output, write) as put, Gauge("Answering", size, "rows") as gauge:
        gauge.resume_from(done, passed)
        while piece := list(islice(rows, PIECE)):
            lines, too_long = _answered(model, piece, columns, details=details)
            failed += sum("error" in line for line in lines)
            cut += too_long
            put(lines)
            gauge.add(len(piece), sum(_size(row) for row in piece))
    if output is not None:
        _note(output).unlink(missing_ok=True)
    if failed:
        say(f"{failed:,} of {gauge.items - done:,} rows could not be answered; their lines say why.")
    say_cut(cut, gauge.items - done, model.input_spec)
    return {"rows": gauge.items, "before": done, "failed": failed, "output": str(output) if output else None}


def _answered(
    model: LoadedModel, rows: Sequence[Record | BadRecord], columns: RoleColumns, *, details: bool
) -> tuple[list[dict[str, Any]], int]:
    """A line for each row, and how many were longer than the model reads."""
    task = model.required_task
    examples: list[Example] = []
    faults: dict[int, str] = {}
    for number, row in enumerate(rows):
        if isinstance(row, BadRecord):
            faults[number] = f"{row.place} {row.reason}."
            continue
        try:
            examples.append(task.example(values_of(row, columns), with_gold=False))
        except Unusable as reason:
            faults[number] = f"{row.place} {reason}."
    answers, cut = model.answers_and_cut(examples) if examples else ([], 0)
    shown = (task.shown(one, answer, details=details) for one, answer in zip(examples, answers, strict=True))
    return [{"error": faults[number]} if number in faults else next(shown) for number in range(len(rows))], cut


def _size(row: Record | BadRecord) -> int:
    """In the file, about."""
    return len(str(list(row.values.values())).encode("utf-8", "replace")) if isinstance(row, Record) else 1


def _asked(
    model: LoadedModel, source: Place, columns: RoleColumns, data: DataSection, *, details: bool
) -> dict[str, Any]:
    """What answers depend on, but for the machine."""
    files = [source.path] if source.path.is_file() else sorted(p for p in source.path.rglob("*") if p.is_file())
    return {
        "input": [source.beneath, *(sha256_of(path) for path in files)],
        "model": model.facts.get("files") or str(model.folder),
        "task": facts_of(model.required_task),
        "columns": {role: list(name) if isinstance(name, tuple) else name for role, name in columns.items()},
        "encoding": data.encoding,
        **({"format": data.format} if data.format else {}),
        "details": details,
    }


def _note(output: Path) -> Path:
    return output.with_name(f".{output.name}.asked")


def _begin(output: Path, file: Path, asked: dict[str, Any], *, resume: bool) -> int:
    """How many answers are there already. What was cut off behind them is taken away, if they are not all."""
    if not output.exists():
        write_file(_note(output), to_json(asked))
        return 0
    if not output.is_file():
        raise InputError(f"{output} is not a file; the answers need one.")
    if output.samefile(file):
        raise InputError(f"{output} is what is to be answered; the answers need another file.")
    if not resume:
        raise InputError(f"{output} is there already: --resume goes on with it, or choose another.")
    is_open = _note(output).is_file()
    known = read_json(_note(output)) if is_open else asked
    if another := [what for what in asked if known.get(what) != asked[what]]:
        raise InputError(f"{output} was not begun with the same {another[0]}: choose another file.")
    count, end = _whole_lines(output)
    if is_open:
        with disk_errors(output):
            os.truncate(output, end)
    return count


def _whole_lines(file: Path) -> tuple[int, int]:
    """How many there are, and where the last of them ends."""
    count = end = 0
    with file.open("rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
    return count, end


@contextmanager
def _sink(output: Path | None, write: Write) -> Iterator[Write]:
    if output is None:
        yield write
        return
    with disk_errors(output):
        stream: TextIO = output.open("a", encoding="utf-8")
    with stream:

        def put(lines: Sequence[dict[str, Any]]) -> None:
            with disk_errors(output):
                stream.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
                stream.flush()
                os.fsync(stream.fileno())

        yield put
