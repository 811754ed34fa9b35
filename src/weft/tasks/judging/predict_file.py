"""`weft predict --file`: a prediction for every row of a file, one JSON line each, in the order of the rows.

Rows are read, answered and written in pieces, so memory does not grow with the file. Each piece is on the disk before
the next begins. Resuming counts the complete lines of the output and skips as many rows. Until the end, a hidden file
beside the output records what was asked for: a different request is refused, and so is a file that weft did not begin.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from weft.errors import InputError
from weft.folders import disk_errors, locked, read_json, sha256_of, to_json, write_file
from weft.progress import Gauge, say
from weft.recipe.finetune import DataSection
from weft.sources.places import Place, locate
from weft.sources.records import BadRecord, Record
from weft.tasks.example import Example, Unusable
from weft.tasks.judging.evaluation import examples_at_once, say_cut
from weft.tasks.judging.predict import given_texts
from weft.tasks.labelled.columns import RoleColumns
from weft.tasks.labelled.data import columns_of, named, open_rows, values_of
from weft.tasks.loaded import LoadedModel

WriteLines = Callable[[Sequence[dict[str, Any]]], None]
Rows = Iterator[Record | BadRecord]
SAMPLED_ROWS = 200  # that show whether there is a column of ids
ID_COLUMNS = ("id", "guid", "uuid", "uid", "qid", "idx", "index")


@dataclass(frozen=True)
class LineFormat:
    """What a line of the output holds besides the prediction."""

    details: bool = False  # the scores of all labels, the runners-up
    with_text: bool = False  # the texts that were given
    id_column: str | None = None  # None: one that is called id, idx …; else the number of the line or row


@dataclass(frozen=True)
class _Request:
    """Everything that the lines depend on, apart from the machine."""

    model: LoadedModel
    place: Place
    columns: RoleColumns
    data: DataSection
    lines: LineFormat

    def facts(self) -> dict[str, Any]:
        path = self.place.path
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        return {
            "input": [self.place.beneath, *(sha256_of(file) for file in files)],
            "model": self.model.facts.get("files") or str(self.model.folder),
            "task": self.model.required_task.facts(),
            "columns": {role: list(name) if isinstance(name, tuple) else name for role, name in self.columns.items()},
            "encoding": self.data.encoding,
            **({"format": self.data.format} if self.data.format else {}),
            **asdict(self.lines),
        }


def predict_file(
    model: LoadedModel,
    file: Path,
    output: Path | None,
    data: DataSection,
    write: WriteLines,
    lines: LineFormat | None = None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Write a line per row to `output`, or give it to `write`. A row that cannot be answered gets a line that says why,
    so that lines and rows correspond.
    """
    lines = lines or LineFormat()
    if output is None:
        if resume:
            raise InputError("--resume goes with --output: there is no record of lines that were printed.")
        return _predict(model, file, None, data, write, lines, resume=False)
    if not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: there is no folder {output.parent}.")
    if resume and locate(file).is_standard_input:
        raise InputError(
            "Standard input (-) cannot be resumed: its rows are gone. Save it to a file, and give that to --file."
        )
    lock = output.with_name(f".{output.name}.lock")
    with locked(lock, f"{output} is being written by another process."):
        try:
            return _predict(model, file, output, data, write, lines, resume=resume)
        finally:
            lock.unlink(missing_ok=True)


def _predict(
    model: LoadedModel,
    file: Path,
    output: Path | None,
    data: DataSection,
    write: WriteLines,
    lines: LineFormat,
    *,
    resume: bool,
) -> dict[str, Any]:
    task, place = model.required_task, locate(file)
    rows: Rows = open_rows([file], data)
    columns, guesses, rows = columns_of(rows, task, data.named_columns(), named([file]), with_gold=False)
    for guess in guesses:
        say(guess)
    lines, rows = _with_id_column(lines, columns, rows, place.where)
    request = _Request(model, place, columns, data, lines)
    done = size = 0
    if output is not None:
        done, size = _skip_answered(output, request, rows, resume=resume)
    failed = cut = 0
    with _writer(output, write) as put, Gauge("Predicting", place.plain_bytes, "rows") as gauge:
        gauge.resume_from(done, size)
        while piece := list(islice(rows, examples_at_once(task))):
            answered, too_long = _answered(request, piece)
            failed += sum("error" in line for line in answered)
            cut += too_long
            put(answered)
            gauge.add(len(piece), sum(map(_row_size, piece)))
    if output is not None:
        _request_file(output).unlink(missing_ok=True)
    if failed:
        say(f"{failed:,} of {gauge.items - done:,} rows could not be answered; their lines say why.")
    say_cut(cut, gauge.items - done, model.required_task.most_tokens(model.input_spec))
    return {"rows": gauge.items, "before": done, "failed": failed, "output": str(output) if output else None}


def _with_id_column(lines: LineFormat, columns: RoleColumns, rows: Rows, where: str) -> tuple[LineFormat, Rows]:
    """With the column that holds the ids, if there is one; and all the rows again."""
    sample = list(islice(rows, SAMPLED_ROWS))
    names = {name.lower(): name for row in sample if isinstance(row, Record) for name in row.values}
    rows = chain(sample, rows)
    if (said := lines.id_column) is not None:
        if said not in names.values():
            raise InputError(f"{where} has no column {said} for the ids. It has: {', '.join(names.values())}.")
        return lines, rows
    found = next((names[name] for name in ID_COLUMNS if name in names and names[name] not in columns.values()), None)
    return LineFormat(lines.details, lines.with_text, found), rows


def _answered(request: _Request, rows: Sequence[Record | BadRecord]) -> tuple[list[dict[str, Any]], int]:
    """A line for each row, and how many examples were longer than the model reads."""
    task, lines = request.model.required_task, request.lines
    examples: list[Example] = []
    before: list[dict[str, Any]] = []  # what each line holds before the prediction
    errors: dict[int, str] = {}
    for number, row in enumerate(rows):
        before.append({"id": _id_of(row, request)})
        if isinstance(row, BadRecord):
            errors[number] = f"{row.place} {row.reason}."
            continue
        values = values_of(row, request.columns)
        if lines.with_text:
            before[-1] |= given_texts(values)
        try:
            examples.append(task.example(values, with_gold=False))
        except Unusable as reason:
            errors[number] = f"{row.place} {reason}."
    answers, cut = request.model.answers_and_cut(examples) if examples else ([], 0)
    shown = (task.shown(one, answer, details=lines.details) for one, answer in zip(examples, answers, strict=True))
    return [
        {**known, **({"error": errors[number]} if number in errors else next(shown))}
        for number, known in enumerate(before)
    ], cut


def _id_of(row: Record | BadRecord, request: _Request) -> str | int | None:
    """The data's own id; without a column of ids the line (or row) of the file, or the place in a folder or archive."""
    if column := request.lines.id_column:
        found = row.values.get(column) if isinstance(row, Record) else None
        return found if isinstance(found, str | int) else None
    place = request.place
    return row.place if place.is_archive or place.path.is_dir() else row.number or row.place


def _row_size(row: Record | BadRecord) -> int:
    """About how many bytes it takes in the file."""
    return len(str(list(row.values.values())).encode("utf-8", "replace")) if isinstance(row, Record) else 1


def _request_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.asked")


def _skip_answered(output: Path, request: _Request, rows: Rows, *, resume: bool) -> tuple[int, int]:
    """Move `rows` past those that the output has lines for. Returns how many these are, and their size."""
    is_new = not output.exists()
    done = _begin(output, request, resume=resume)
    count = size = 0
    for row in islice(rows, done):
        count, size = count + 1, size + _row_size(row)
    is_finished = not is_new and not _request_file(output).is_file()
    if count < done or (is_finished and next(rows, None) is not None):
        raise InputError(
            f"{output} has {done:,} lines, which are not the answers to {request.place.where}: choose another file."
        )
    return done, size


def _begin(output: Path, request: _Request, *, resume: bool) -> int:
    """How many complete lines the output has. What follows the last of them is cut off if the output is unfinished."""
    if not output.exists():
        if not request.place.is_standard_input:
            write_file(_request_file(output), to_json(request.facts()))
        return 0
    if not output.is_file():
        raise InputError(f"{output} is not a file; the predictions need one.")
    if request.place.path.exists() and output.samefile(request.place.path):
        raise InputError(f"{output} is the input; the predictions need another file.")
    if not resume:
        advice = "" if request.place.is_standard_input else "continue it with --resume, or "
        raise InputError(f"{output} exists already: {advice}choose another file.")
    asked, is_open = request.facts(), _request_file(output).is_file()
    known = read_json(_request_file(output)) if is_open else asked
    if another := [what for what in asked if known.get(what) != asked[what]]:
        raise InputError(f"{output} was begun with another {another[0].replace('_', ' ')}: choose another file.")
    count, end = _complete_lines(output)
    if is_open:
        with disk_errors(output):
            os.truncate(output, end)
    return count


def _complete_lines(file: Path) -> tuple[int, int]:
    """How many there are, and where the last of them ends."""
    count = end = 0
    with file.open("rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
    return count, end


@contextmanager
def _writer(output: Path | None, write: WriteLines) -> Iterator[WriteLines]:
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
