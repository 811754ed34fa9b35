"""Rows of task data, one after another, so that memory does not grow with the data.

A row is a record with its columns: a line of a table, an object of JSON, a sentence with its tags, a text in the folder
of its class, or the lines of parallel texts. A row that cannot be used is a `BadRecord`, and reading continues.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from weft.errors import InputError
from weft.sources.archives import Refused
from weft.sources.formats import lines
from weft.sources.formats.lines import Line, read_document, read_lines
from weft.sources.places import Place, PlaceStream, locate
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

_PARALLEL = ("source", "target")
_MOST_WHOLE = 2**30  # bytes of a .json file, or of a compressed .parquet: they are in memory as a whole


def read_rows(
    paths: Path | str | Sequence[Path],
    *,
    encoding: str = "utf-8",
    header: Sequence[str] | None = None,
    format: str | None = None,
) -> Iterator[Record | BadRecord]:
    """The rows of several paths follow each other. Several text files are parallel, line by line.

    `header` names the columns of tables whose first line does not, and of parallel texts (default: source, target).
    `format` is that of all files. Default: by their endings.
    """
    reading = Reading(
        "line",
        text=None,
        encoding=encoding,
        header=None if header is None else tuple(header),
        most_line=lines.MOST_LINE_BYTES,
        most_json=_MOST_WHOLE,
        most_parquet=_MOST_WHOLE,
    )
    places = [locate(Path(path), format) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not places:
        raise InputError("There is no file to read rows from.")
    texts = [place for place in places if place.is_text] if len(places) > 1 else []
    if not texts:
        for place in places:
            _ = place.has_classes  # raises InputError if the names do not tell
        return (row for place in places for row in _rows(place, reading))
    if len(texts) < len(places):
        other = next(place for place in places if not place.is_text)
        raise InputError(f"{texts[0].where} is lines of text, and {other.where} is not: they cannot be parallel.")
    return _parallel(texts, reading)


def _rows(place: Place, reading: Reading) -> Iterator[Record | BadRecord]:
    is_empty = True
    for stream in place.streams():
        for row in _rows_of_stream(place, stream, reading):
            is_empty = False
            yield row
    if is_empty:
        raise InputError(f"{place.where} holds no rows: it is empty, or has only a header.")


def _rows_of_stream(place: Place, stream: PlaceStream, reading: Reading) -> Iterator[Record | BadRecord]:
    form = place.format_of(stream.name)
    origin = Origin(stream.file, stream.member, form.unit)
    if isinstance(stream.content, Refused):
        yield BadRecord(str(stream.content), origin)
        return
    try:
        match place.role_of(stream.name):
            case "rows":
                yield from form.read(stream.content, reading, origin)
            case "text":
                yield _text_of_class(stream, reading, origin)
            case "stray":
                yield BadRecord("is not in the folder of a class", origin)
    except Refused as refused:
        yield BadRecord(str(refused), origin)
    except InputError as error:
        raise InputError(f"{BadRecord('', origin).place}: {error}") from None


def _text_of_class(stream: PlaceStream, reading: Reading, origin: Origin) -> Record | BadRecord:
    assert not isinstance(stream.content, Refused)
    text, fault = read_document(stream.content, reading.encoding, reading.most_line)
    if not fault and "\0" in text:
        fault = "is a binary file, not text"
    if not fault and not text.strip():
        fault = "is empty"
    if fault:
        return BadRecord(fault, origin)
    label = PurePosixPath(stream.member).parent.name if stream.member else stream.file.parent.name
    return Record({"text": text, "label": label}, origin, 0)


def _parallel(places: list[Place], reading: Reading) -> Iterator[Record | BadRecord]:
    """A bad line costs its row only; the lines below it stay aligned."""
    numbered = (f"column {number}" for number in range(len(_PARALLEL), len(places)))
    names = list(reading.header or [*_PARALLEL, *numbered])
    if len(names) != len(places):
        raise InputError(f"finetune.data.columns has {len(names)} names for {len(places)} parallel files.")
    origins = [Origin(place.path, place.beneath) for place in places]
    readers = [_lines_of(place, reading) for place in places]
    counts = [0] * len(places)
    while True:
        found = [next(reader, None) for reader in readers]
        counts = [count + (line is not None) for count, line in zip(counts, found, strict=True)]
        row = [line for line in found if line is not None]
        if len(row) < len(found):
            break
        for origin, line in zip(origins, row, strict=True):
            if reason := line.fault or ("" if line.text.strip() else "is empty"):
                yield BadRecord(reason, origin, line.number)
                break
        else:
            values = {name: line.content for name, line in zip(names, row, strict=True)}
            yield Record(values, origins[0], row[0].number)
    counts = [count + sum(1 for _ in reader) for count, reader in zip(counts, readers, strict=True)]
    if len(set(counts)) > 1:
        said = " and ".join(f"{place.where} has {count:,} lines" for place, count in zip(places, counts, strict=True))
        raise InputError(f"{said}: they are not parallel.")
    if not counts[0]:
        raise InputError(f"{places[0].where} is empty.")


def _lines_of(place: Place, reading: Reading) -> Iterator[Line]:
    """Raises InputError if a part of the place cannot be read: the lines after it would not be aligned."""
    for stream in place.streams():
        try:
            if isinstance(stream.content, Refused):
                raise stream.content
            yield from read_lines(stream.content, reading.encoding, reading.most_line)
        except Refused as refused:
            raise InputError(f"{place.where} {refused}.") from None
