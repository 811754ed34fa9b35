"""Tables: CSV and TSV. A record's values go by the names in the first line, or by those of `Reading.header`.

In a `.csv` quotes hold a field together, newlines included; in a `.tsv` they are characters like any other: GLUE's
files have single quotes in their sentences. A quote that is never closed would swallow the rest of the file, and one
that the next quote closes some rows. So the line where it opens is a bad record, and reading continues with the next
line.
"""

import csv
from collections import deque
from collections.abc import Iterator
from typing import IO

from weft.errors import InputError
from weft.sources.formats.column_names import find_column, names_in_first_line, refuse_equal_names
from weft.sources.formats.lines import MOST_LINE_BYTES, Line, read_lines
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

Fields = tuple[int, list[str] | str]  # the line where a row begins; its fields, or why there are none
MOST_FIELD_LINES = 50_000  # lines of one field; a quote that stays open for longer was not meant as one
# Lines that may be read again, for each line of the file. Beyond that quotes open everywhere, and only short fields are
# waited for; otherwise the time would grow with the square of the file.
MOST_REPLAYED, SHORT_FIELD = 20, 20


def read_csv(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    return _records(read_quoted(stream, reading.encoding, reading.most_line), reading, origin)


def read_tsv(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    return _records(read_tabbed(stream, reading.encoding, reading.most_line), reading, origin)


def _records(rows: Iterator[Fields], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    number, first = next(rows, (0, None))
    if first is None:
        if reading.text is not None:
            yield BadRecord("is empty", origin, kind="empty")
        return
    if reading.header is None and isinstance(first, str):
        raise InputError(f"the line with the names of the columns {first}.")
    if reading.text is not None:
        yield from _texts(rows, list(first), reading.text, origin)
        return
    names = list(reading.header) if reading.header is not None else names_in_first_line(list(first))
    refuse_equal_names(names)
    if reading.header is not None and (isinstance(first, str) or [name.strip() for name in first] != names):
        yield _record(number, first, names, origin)
    for number, fields in rows:
        yield _record(number, fields, names, origin)


def _texts(rows: Iterator[Fields], header: list[str], wanted: str, origin: Origin) -> Iterator[Record | BadRecord]:
    """Only the column with the text. The other names may be missing or equal."""
    column, width = find_column(header, wanted), len(header)
    for number, fields in rows:
        if isinstance(fields, str) or len(fields) != width:
            yield _record(number, fields, header, origin)
        else:
            yield Record({wanted: fields[column].replace("\0", "")}, origin, number)


def _record(number: int, fields: list[str] | str, names: list[str], origin: Origin) -> Record | BadRecord:
    if isinstance(fields, str):
        return BadRecord(fields, origin, number)
    if len(fields) != len(names):
        count = f"{len(fields)} field{'s' if len(fields) != 1 else ''}"
        return BadRecord(f"has {count} for {len(names)} columns", origin, number)
    return Record(dict(zip(names, fields, strict=True)), origin, number)


def read_tabbed(stream: IO[bytes], encoding: str, most: int | None = None) -> Iterator[Fields]:
    for line in read_lines(stream, encoding, most):
        if line.fault or line.content:
            yield line.number, line.fault or line.content.split("\t")


def read_quoted(stream: IO[bytes], encoding: str, most: int | None = None) -> Iterator[Fields]:
    lines = _Replayed(read_lines(stream, encoding, most), most or MOST_LINE_BYTES)
    csv.field_size_limit(max(csv.field_size_limit(), lines.most))
    records = csv.reader(lines)
    width = 0  # of the first row
    while True:
        lines.record.clear()
        lines.size = 0
        try:
            fields: list[str] | str = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            fields = f"is not a row of a table ({error})"
        except _EndlessRecord:
            lines.is_over = True
        begins = lines.record[0].number
        if lines.is_over:  # csv.reader asks for a line after the last only if a quote is open
            fields = "opens a quote that is never closed"
            lines.replay()
        elif fault := next((line.fault for line in lines.record if line.fault), ""):
            fields = fault
        elif isinstance(fields, list):
            width = width or len(fields)
            if len(lines.record) > 1 and (len(fields) != width or not _is_strict(lines.record)):
                fields = f"opens a quote that is closed {len(lines.record) - 1} lines below, in another row"
                lines.replay()
        if fields:
            yield begins, fields


def _is_strict(record: list[Line]) -> bool:
    """Whether every closing quote is at the end of its field."""
    try:
        return len(list(csv.reader((line.text for line in record), strict=True))) == 1
    except csv.Error:
        return False


class _EndlessRecord(Exception):
    pass


class _Replayed:
    """Lines for `csv.reader`. Those of the current record are kept, so that they can be read again."""

    def __init__(self, lines: Iterator[Line], most: int) -> None:
        self.lines, self.most = lines, most
        self.again: deque[Line] = deque()
        self.record: list[Line] = []
        self.size = 0
        self.left = MOST_FIELD_LINES  # lines that may still be read again
        self.is_over = False

    def __iter__(self) -> "_Replayed":
        return self

    def __next__(self) -> str:
        if self.size > self.most or len(self.record) > min(MOST_FIELD_LINES, max(self.left, SHORT_FIELD)):
            raise _EndlessRecord
        line = self.again.popleft() if self.again else self._next()
        if line is None:
            self.is_over = bool(self.record)
            raise StopIteration
        self.record.append(line)
        self.size += len(line.text)
        return line.text

    def _next(self) -> Line | None:
        self.left += MOST_REPLAYED
        return next(self.lines, None)

    def replay(self) -> None:
        """Read all lines of the record again, except its first."""
        self.left -= len(self.record)
        self.again.extendleft(reversed(self.record[1:]))
        self.is_over = False
