"""Rows of task data out of files, one after another: memory does not grow with the data.

A row is a line of a table, an object of JSON, a sentence with its tags, a text in the folder of its class, a line of
two texts that run in parallel; its values go by the names of their columns. What cannot be used is a `BadRow` with its
place and the reason, and reading goes on: who wants all or nothing raises at the first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from weft.errors import InputError
from weft.sources.archives import Refused, inner_name
from weft.sources.encoding import codec_of
from weft.sources.lines import MOST_LINE, Line, read_document, read_lines
from weft.sources.places import Part, Source, ending, locate
from weft.sources.row_formats import UNNUMBERED, read_stream

PARALLEL = ("source", "target")


@dataclass(frozen=True)
class Row:
    values: dict[str, Any]  # by column
    file: Path
    line: int  # where it begins in its file, from 1; without lines, the row's number; 0 of a file that is one row
    member: str = ""  # of an archive

    @property
    def place(self) -> str:
        return _place(self.file, self.line, self.member)


@dataclass(frozen=True)
class BadRow:
    """Cannot be used; nor can what follows in its file, if `line` is 0."""

    reason: str  # the end of a sentence that begins with the place
    file: Path
    line: int
    member: str = ""

    @property
    def place(self) -> str:
        return _place(self.file, self.line, self.member)


def _place(file: Path, line: int, member: str) -> str:
    """train.tsv, line 7 or 20news.tar.gz, 20news-bydate-train/sci.space/59848"""
    word = "row" if ending(inner_name(member or file.name)) in UNNUMBERED else "line"
    return file.name + (f", {member}" if member else "") + (f", {word} {line}" if line else "")


def read_rows(
    source: Path | Sequence[Path],
    *,
    encoding: str = "utf-8",
    header: Sequence[str] | None = None,
    format: str | None = None,
) -> Iterator[Row | BadRow]:
    """Of several sources the rows follow each other; several text files run in parallel, line by line.

    `header` names the columns of tables that do not, and of parallel texts, which are source and target otherwise.
    `format` is that of all files, whatever they are called.
    """
    codec_of(encoding)  # an error if there is no such encoding
    sources = [locate(Path(path), format) for path in ([source] if isinstance(source, str | Path) else source)]
    if not sources:
        raise InputError("There is no file to read rows from.")
    texts = [source for source in sources if source.is_text] if len(sources) > 1 else []
    if not texts:
        for each in sources:
            _ = each.has_classes  # an error if it cannot be told what is in it
        return (row for each in sources for row in _rows(each, encoding, header))
    if len(texts) < len(sources):
        others = next(source for source in sources if not source.is_text)
        raise InputError(f"{texts[0].where} is text, to run in parallel with another, and {others.where} is not.")
    return _parallel(texts, encoding, header)


def _rows(source: Source, encoding: str, header: Sequence[str] | None) -> Iterator[Row | BadRow]:
    is_empty = True
    for part in source.parts():
        for row in _rows_of_part(source, part, encoding, header):
            is_empty = False
            yield row
    if is_empty:
        raise InputError(f"{source.where} holds no rows: it is empty, or has only a header.")


def _rows_of_part(source: Source, part: Part, encoding: str, header: Sequence[str] | None) -> Iterator[Row | BadRow]:
    if isinstance(part.content, Refused):
        yield BadRow(str(part.content), part.file, 0, part.member)
        return
    role = source.role_of(part.name)
    try:
        if role == "rows":
            for number, values in read_stream(source.ending_of(part.name), part.content, encoding, header):
                if isinstance(values, str):
                    yield BadRow(values, part.file, number, part.member)
                else:
                    yield Row(values, part.file, number, part.member)
        elif role == "text":
            yield _text_of_class(part, encoding)
        elif role == "stray":
            yield BadRow("lies beside the folders of the classes, not in one", part.file, 0, part.member)
    except Refused as refused:
        yield BadRow(str(refused), part.file, 0, part.member)
    except InputError as error:
        raise InputError(f"{_place(part.file, 0, part.member)}: {error}") from None


def _text_of_class(part: Part, encoding: str) -> Row | BadRow:
    assert not isinstance(part.content, Refused)
    text, fault = read_document(part.content, encoding, MOST_LINE)
    if not fault and "\0" in text:
        fault = "is a binary file, not text"
    if not fault and not text.strip():
        fault = "is empty"
    if fault:
        return BadRow(fault, part.file, 0, part.member)
    label = PurePosixPath(part.member).parent.name if part.member else part.file.parent.name
    return Row({"text": text, "label": label}, part.file, 0, part.member)


def _parallel(sources: list[Source], encoding: str, header: Sequence[str] | None) -> Iterator[Row | BadRow]:
    names = list(header or [*PARALLEL, *(f"column {number}" for number in range(len(PARALLEL), len(sources)))])
    if len(names) != len(sources):
        raise InputError(
            f"{len(names)} names (finetune.data.columns) are not enough or too many for {len(sources)} files."
        )
    readers = [_lines_of(source, encoding) for source in sources]
    counts = [0] * len(sources)
    while True:
        found = [next(reader, None) for reader in readers]
        counts = [count + (line is not None) for count, line in zip(counts, found, strict=True)]
        lines = [line for line in found if line is not None]
        if len(lines) < len(found):
            break
        for source, line in zip(sources, lines, strict=True):
            if reason := line.fault or ("" if line.text.strip() else "is empty"):
                yield BadRow(reason, source.path, line.number, source.beneath)
                break
        else:
            values = {name: line.content for name, line in zip(names, lines, strict=True)}
            yield Row(values, sources[0].path, lines[0].number, sources[0].beneath)
    counts = [count + sum(1 for _ in reader) for count, reader in zip(counts, readers, strict=True)]
    if len(set(counts)) > 1:
        said = " and ".join(
            f"{source.where} has {count:,} lines" for source, count in zip(sources, counts, strict=True)
        )
        raise InputError(f"{said}: they are not parallel.")
    if not counts[0]:
        raise InputError(f"{sources[0].where} is empty.")


def _lines_of(source: Source, encoding: str) -> Iterator[Line]:
    """Nothing may be missing here: the lines after it would meet the wrong ones."""
    for part in source.parts():
        try:
            if isinstance(part.content, Refused):
                raise part.content
            yield from read_lines(part.content, encoding)
        except Refused as refused:
            raise InputError(f"{source.where} {refused}.") from None
