"""The lines of a table as fields, each with the number of the line where it begins.

In a `.csv` quotes hold a field together, newlines included; in a `.tsv` they are characters like any other, as GLUE's
files have single ones in their sentences. A quote that is never closed would take the rest of the file with it, and one
that the next quote closes some rows: the line where it opens is a fault, and reading goes on with the line below.
"""

import csv
from collections import deque
from collections.abc import Iterator
from typing import IO

from weft.sources.lines import MOST_LINE, Line, read_lines

Fields = tuple[int, list[str] | str]  # or why there are none: the end of a sentence that begins with the place
MOST_LINES = 50_000  # that one field may hold; a quote that is open for longer was not meant to be one
# Lines that may be read again, for each line of the file. Where more are, quotes open everywhere, and only short fields
# are waited for: otherwise the time would grow with the square of the file.
MOST_AGAIN, SHORT = 20, 20


def read_tabbed(stream: IO[bytes], encoding: str, most: int | None = None) -> Iterator[Fields]:
    for line in read_lines(stream, encoding, most):
        if line.fault or line.content:
            yield line.number, line.fault or line.content.split("\t")


def read_quoted(stream: IO[bytes], encoding: str, most: int | None = None) -> Iterator[Fields]:
    lines = _Replayed(read_lines(stream, encoding, most), most or MOST_LINE)
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
        if lines.is_over:  # the reader asks for a line beyond the last only if a quote is open
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
    """Whether every quote that closes a field stands at its end."""
    try:
        return len(list(csv.reader((line.text for line in record), strict=True))) == 1
    except csv.Error:
        return False


class _EndlessRecord(Exception):
    pass


class _Replayed:
    """Lines for `csv.reader`, which remembers those of a record so that they can be read once more."""

    def __init__(self, lines: Iterator[Line], most: int) -> None:
        self.lines, self.most = lines, most
        self.again: deque[Line] = deque()
        self.record: list[Line] = []
        self.size = 0
        self.left = MOST_LINES  # lines that may still be read again
        self.is_over = False

    def __iter__(self) -> "_Replayed":
        return self

    def __next__(self) -> str:
        if self.size > self.most or len(self.record) > min(MOST_LINES, max(self.left, SHORT)):
            raise _EndlessRecord
        line = self.again.popleft() if self.again else self._next()
        if line is None:
            self.is_over = bool(self.record)
            raise StopIteration
        self.record.append(line)
        self.size += len(line.text)
        return line.text

    def _next(self) -> Line | None:
        self.left += MOST_AGAIN
        return next(self.lines, None)

    def replay(self) -> None:
        """All lines of the record but its first."""
        self.left -= len(self.record)
        self.again.extendleft(reversed(self.record[1:]))
        self.is_over = False
