"""Text files: a record per file, per line, or per block between blank lines (`Reading.unit`).

A file that is one record is cut into parts if it is longer than `Reading.longest`.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO

from weft.sources.formats.cut_long import cut_stream
from weft.sources.formats.lines import first_bad_byte, raw_lines, read_whole, too_long, too_long_line
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

_SPACES = [chr(number) for number in range(0x3001) if chr(number).isspace()]
_BLANK_LINE = re.compile(b"(?:" + b"|".join(re.escape(space.encode()) for space in [*_SPACES, "\ufeff"]) + b")*")
_HEAD = 100_000  # bytes in which a NUL shows that a file is binary
_ADVICE = "Convert it first, for example: iconv -f latin1 -t utf-8."


def read_text_file(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    match reading.unit:
        case "file":
            if reading.longest is None:
                return _whole(stream, reading, origin)
            return _in_parts(stream, reading, origin, reading.longest)
        case "line":
            return _each_line(stream, reading, origin)
        case "block":
            return _blocks(stream, reading, origin)


def _whole(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    data = read_whole(stream, reading.most_text)
    yield BadRecord(too_long(reading.most_text), origin) if data is None else text_record(data, reading, origin)


def _in_parts(stream: IO[bytes], reading: Reading, origin: Origin, longest: int) -> Iterator[Record | BadRecord]:
    """A text that is one part is not called a part, so the last one is held back until it is known."""
    number, before = reading.first_number, None
    for part in cut_stream(stream, longest, reading.encoding):
        if before is not None:
            yield _part(before, reading, origin, number)
            number += 1
        before = part
    if number > 0 and before is not None:
        yield _part(before, reading, origin, number)
    else:
        yield text_record(before or b"", reading, origin)


def _part(data: bytes, reading: Reading, origin: Origin, number: int) -> Record | BadRecord:
    origin = origin._replace(unit="part")
    record = text_record(data, reading, origin)
    if isinstance(record, BadRecord):
        reason = record.reason if not record.number else f"{record.reason} of its line {record.number}"
        return BadRecord(reason, origin, number + 1, advice=record.advice)
    return Record({**record.values, "is_part": True}, origin, number + 1)


def _each_line(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    for number, line in raw_lines(stream, reading.most_line, reading.first_number + 1):
        if line is None:
            yield BadRecord(too_long_line(reading.most_line), origin, number)
        else:
            record = text_record(line.rstrip(b"\r\n"), reading, origin, number)
            if isinstance(record, Record) and (not (text := record.values["text"]) or text.isspace()):
                record = BadRecord("is empty", origin, number, "blank line")
            yield record


def _blocks(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    """A block is numbered by its first line. Its lines are decoded together: several times faster than one by one."""
    block: list[bytes] = []
    size = begins = 0
    is_too_long = False
    for number, line in raw_lines(stream, reading.most_line, reading.first_number + 1):
        if line is not None and _BLANK_LINE.fullmatch(line):
            if block:
                yield text_record(b"".join(block).rstrip(b"\r\n"), reading, origin, begins)
            block, size, is_too_long = [], 0, False
        elif not is_too_long:
            size += reading.most_line + 1 if line is None else len(line)
            if is_too_long := size > reading.most_line:
                yield BadRecord(too_long_line(reading.most_line), origin, number)
                block = []
            elif line is not None:
                begins = begins if block else number
                block.append(line)
    if block:
        yield text_record(b"".join(block).rstrip(b"\r\n"), reading, origin, begins)


def text_record(data: bytes, reading: Reading, origin: Origin, number: int = 0) -> Record | BadRecord:
    """`number` is the line where the data begins; 0 if it is the whole stream."""
    is_document = reading.text is not None  # a row of task data keeps its NULs
    if is_document and b"\x00" in data[:_HEAD]:
        return BadRecord("is a binary file, not text", origin, number)
    try:
        # Most data has no byte-order mark, and the codec that removes one is slow.
        codec = reading.codec if data.startswith(BOM_UTF8) else reading.encoding
        return Record({"text": data.decode(codec)}, origin, number)
    except UnicodeDecodeError as error:
        above = data[: first_bad_byte(data, error)].split(b"\n")
        line, byte = max(number, 1) + len(above) - 1, len(above[-1]) + 1
        return BadRecord(f"is not {reading.encoding.upper()} at byte {byte}", origin, line, advice=_ADVICE)
