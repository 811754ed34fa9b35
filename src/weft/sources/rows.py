"""Rows of task data out of files, one after another: memory does not grow with the data.

A row is a line of a table, an object of JSON, a sentence with its tags, a text in the folder of its class, a line of
two texts that run in parallel; its values go by the names of their columns. What cannot be used is a `BadRecord`
with its place and the reason, and reading goes on: who wants all or nothing raises at the first.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from weft.errors import InputError
from weft.sources.archives import Refused
from weft.sources.encoding import codec_of
from weft.sources.lines import MOST_LINE, Line, read_document, read_lines
from weft.sources.places import Part, Place, locate
from weft.sources.records import BadRecord, Origin, Record
from weft.sources.row_formats import UNNUMBERED, read_stream

PARALLEL = ("source", "target")


def read_rows(
    source: Path | Sequence[Path],
    *,
    encoding: str = "utf-8",
    header: Sequence[str] | None = None,
    format: str | None = None,
) -> Iterator[Record | BadRecord]:
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


def _rows(source: Place, encoding: str, header: Sequence[str] | None) -> Iterator[Record | BadRecord]:
    is_empty = True
    for part in source.parts():
        for row in _rows_of_part(source, part, encoding, header):
            is_empty = False
            yield row
    if is_empty:
        raise InputError(f"{source.where} holds no rows: it is empty, or has only a header.")


def _rows_of_part(
    source: Place, part: Part, encoding: str, header: Sequence[str] | None
) -> Iterator[Record | BadRecord]:
    ending = source.ending_of(part.name)
    origin = Origin(part.file, part.member, "row" if ending in UNNUMBERED else "line")
    if isinstance(part.content, Refused):
        yield BadRecord(str(part.content), origin)
        return
    role = source.role_of(part.name)
    try:
        if role == "rows":
            for number, values in read_stream(ending, part.content, encoding, header):
                if isinstance(values, str):
                    yield BadRecord(values, origin, number)
                else:
                    yield Record(values, origin, number)
        elif role == "text":
            yield _text_of_class(part, encoding, origin)
        elif role == "stray":
            yield BadRecord("lies beside the folders of the classes, not in one", origin)
    except Refused as refused:
        yield BadRecord(str(refused), origin)
    except InputError as error:
        raise InputError(f"{BadRecord('', origin).place}: {error}") from None


def _text_of_class(part: Part, encoding: str, origin: Origin) -> Record | BadRecord:
    assert not isinstance(part.content, Refused)
    text, fault = read_document(part.content, encoding, MOST_LINE)
    if not fault and "\0" in text:
        fault = "is a binary file, not text"
    if not fault and not text.strip():
        fault = "is empty"
    if fault:
        return BadRecord(fault, origin)
    label = PurePosixPath(part.member).parent.name if part.member else part.file.parent.name
    return Record({"text": text, "label": label}, origin, 0)


def _parallel(sources: list[Place], encoding: str, header: Sequence[str] | None) -> Iterator[Record | BadRecord]:
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
                yield BadRecord(reason, Origin(source.path, source.beneath), line.number)
                break
        else:
            values = {name: line.content for name, line in zip(names, lines, strict=True)}
            yield Record(values, Origin(sources[0].path, sources[0].beneath), lines[0].number)
    counts = [count + sum(1 for _ in reader) for count, reader in zip(counts, readers, strict=True)]
    if len(set(counts)) > 1:
        said = " and ".join(
            f"{source.where} has {count:,} lines" for source, count in zip(sources, counts, strict=True)
        )
        raise InputError(f"{said}: they are not parallel.")
    if not counts[0]:
        raise InputError(f"{sources[0].where} is empty.")


def _lines_of(source: Place, encoding: str) -> Iterator[Line]:
    """Nothing may be missing here: the lines after it would meet the wrong ones."""
    for part in source.parts():
        try:
            if isinstance(part.content, Refused):
                raise part.content
            yield from read_lines(part.content, encoding)
        except Refused as refused:
            raise InputError(f"{source.where} {refused}.") from None
