"""Documents: the texts of files, one after another, so that memory does not grow with the corpus.

A text file is one document (or one per line, or per block between blank lines), a `.jsonl` file one per line, a table
one per row, a page its article, a crawl one per page; all of them also compressed or in archives.

A record that cannot be read is a `BadRecord` for `scan`, and an error for `read_documents`: nobody should train on a
part of the text without knowing.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from weft.errors import InputError
from weft.progress import say
from weft.sources.archives import Member, Refused, is_archive, is_hidden, open_members
from weft.sources.files import find_files, is_readable, said_passed_over
from weft.sources.formats.catalog import DOCUMENT_FORMATS, FileFormat, document_format
from weft.sources.formats.cut_long import cut_text
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

_BUFFER = 2**20
Readings = Mapping[Path, Reading]


@dataclass(frozen=True, slots=True)
class Document:
    text: str
    file: Path
    number: int  # in its file, or in its member of an archive, from 0: of a line, a row, a page
    member: str = ""  # of an archive
    address: str | None = None  # of a page in a crawl
    facts: Any = None  # what a page says about itself (`pages.facts.Facts`)
    is_part: bool = False  # of a text that was cut


def read_documents(paths: Sequence[Path], readings: Reading | Readings | None = None) -> Iterator[Document]:
    """Every document that has text. Raises InputError if one cannot be read. There is one reading for all files, or
    one for each.
    """
    for file in files_of(paths, readings):
        reading = readings if isinstance(readings, Reading) else (readings or {}).get(file, Reading())
        passed_over: list[str] = []
        for found in scan(file, reading):
            if isinstance(found, Document):
                yield found
            elif found.kind == "unknown ending":
                passed_over.append(found.member)
            elif found.kind != "empty":
                place = ", ".join(filter(None, (str(file), found.place_in_file)))
                raise InputError(f"{place} {found.reason}. {found.advice}".strip())
        if passed_over:
            _say_once(f"{file}: not read: {said_passed_over([Path(name) for name in passed_over])}")


def files_of(paths: Sequence[Path], readings: Reading | Readings | None) -> list[Path]:
    """A file that has its own reading is taken as it is."""
    if isinstance(readings, Reading):
        return find_files(paths, readings.format)
    known = readings or {}
    return [file for path in paths for file in ([path] if path in known else find_files([path]))]


@cache
def _say_once(sentence: str) -> None:
    """A corpus is read several times."""
    say(sentence)


def scan(file: Path, reading: Reading) -> Iterator[Document | BadRecord]:
    """The documents of a file, and what could not be read. In an archive, as in a folder, only files of a known ending
    count, unless a format is given.
    """
    members = open_members(file)
    is_empty = True
    while True:
        try:
            member = next(members, None)
        except Refused as refused:  # the archive itself is damaged: nothing comes after that
            yield BadRecord(str(refused), Origin(file))
            return
        if member is None:
            break
        name = member.name
        if not is_archive(file.name) or is_readable(name) or (reading.format and not is_hidden(name)):
            is_empty = False
            yield from _scan_member(file, member, reading)
        elif not is_hidden(name):
            yield BadRecord("has an ending that is not known", Origin(file, name), kind="unknown ending")
    if is_empty:
        yield BadRecord(f"holds no text files ({', '.join(DOCUMENT_FORMATS)})", Origin(file))


def scan_range(file: Path, begin: int, end: int, reading: Reading) -> Iterator[Document | BadRecord]:
    """The same for a range of a file that `cut_unit` can cut. It begins and ends where documents do."""
    with file.open("rb") as stream:
        stream.seek(begin)
        part = cast("IO[bytes]", io.BufferedReader(_Range(stream, end - begin), _BUFFER))
        yield from _scan_member(file, Member(file.name, part), reading)


class _Range(io.RawIOBase):
    """The next `size` bytes of a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream, self.left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.stream.read(min(len(buffer), self.left))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


def _scan_member(file: Path, member: Member, reading: Reading) -> Iterator[Document | BadRecord]:
    form = document_format(member.name, reading)
    origin = Origin(file, member.name if is_archive(file.name) else "", form.unit)
    if isinstance(member.content, Refused):
        yield BadRecord(str(member.content), origin)
        return
    try:
        for count, record in enumerate(form.read(member.content, reading, origin)):
            if isinstance(record, Record):
                found = _document(record, count, form, reading)
                if reading.longest is None or isinstance(found, BadRecord) or len(found.text) <= reading.longest:
                    yield found
                else:
                    yield from _parts(found, reading.longest)
            elif record.kind != "blank line":  # which is not a document
                yield record
    except Refused as refused:
        yield BadRecord(str(refused), origin)
    except InputError as error:  # the file is not what it was said to be: a column is missing
        place = ", ".join(filter(None, (str(file), origin.member)))
        raise InputError(f"{place}: {error}") from None


def _document(record: Record, count: int, form: FileFormat, reading: Reading) -> Document | BadRecord:
    """`count` is the number of the record in its file, from 0."""
    values, origin = record.values, record.origin
    column = reading.text if form.has_columns else "text"
    if column not in values:
        return BadRecord(f'is a JSON object without a "{column}"', origin, record.number)
    text = values[column]
    if not isinstance(text, str):
        return BadRecord(f"has a text that is {type(text).__name__}, not a string", origin, record.number)
    if not text or text.isspace():
        return BadRecord("is empty", origin, kind="empty")
    number = count if form.counts_rows else max(record.number - 1, 0)
    if form.has_columns:
        return Document(text, origin.file, number, origin.member)
    facts = values.get("address"), values.get("facts"), values.get("is_part", False)
    return Document(text, origin.file, number, origin.member, *facts)


def _parts(document: Document, longest: int) -> Iterator[Document]:
    for part in cut_text(document.text, longest):
        if part.strip():
            yield replace(document, text=part, is_part=True)
