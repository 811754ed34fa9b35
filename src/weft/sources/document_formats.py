"""Documents out of a stream, by the ending of its name: text, JSON lines, tables, pages, crawls.

A document that cannot be read is `Skipped`, with its place and the reason, and the reader goes on. Who wants all or
nothing raises at the first.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any

from weft.errors import InputError, needs, suggest
from weft.recipe.corpus import Format, Unit
from weft.sources.cut_long import cut_stream
from weft.sources.encoding import codec_of
from weft.sources.json_parquet import Record, Unreadable, objects_in, read_json, read_json_lines, read_parquet
from weft.sources.lines import raw_lines, read_whole
from weft.sources.pages.limits import why_too_large
from weft.sources.tables import Fields, read_quoted, read_tabbed

TEXT, LINES, TABLES, JSON = (".txt", ".md", ".text"), (".jsonl", ".ndjson"), (".csv", ".tsv"), (".json",)
PAGES, CRAWLS, COLUMNS = (".html", ".htm", ".xhtml"), (".warc", ".wet"), (".parquet",)
FORMATS = (*TEXT, *LINES, *JSON, *TABLES, *COLUMNS, *PAGES, *CRAWLS)
SPACES = [chr(number) for number in range(0x3001) if chr(number).isspace()]
BLANK = re.compile(b"(?:" + b"|".join(re.escape(space.encode()) for space in [*SPACES, "\ufeff"]) + b")*")
MOST_JSON, MOST_PACKED = 2**26, 2**28  # bytes of a .json file, of a packed .parquet: they are in memory as a whole
MOST_GROWTH, GROWTH_FROM = 200, 2**20  # of a page that its server compressed, in times; counted beyond so many bytes


@dataclass(frozen=True)
class Reading:
    """How a source is to be read."""

    unit: Unit = "file"  # what a document of a text file is
    text: str = "text"  # the key or column that holds the text
    encoding: str = "utf-8"  # of text, JSON lines and tables; pages say theirs
    format: Format | None = None  # of all files, whatever their names
    most_bytes: int = 2**25  # of a line, a row
    most_page: int = 10_000_000  # of a page
    most_file: int = 2**33  # of a text file that is one document
    longest: int | None = None  # of a document, in bytes; what is longer is cut into several
    first_number: int = 0  # of the line, or the part, where reading begins

    def __post_init__(self) -> None:
        _ = self.codec

    @cached_property
    def codec(self) -> str:
        """Takes a byte-order mark away, where there may be one."""
        return codec_of(self.encoding)

    def ending(self, name: str) -> str:
        """How a file of this name, without the endings of compression, is read."""
        return f".{self.format}" if self.format else PurePosixPath(name).suffix.lower()


@dataclass(frozen=True)
class Found:
    text: str
    number: int  # of the document in its file, from 0: of its line, its row, its page
    address: str | None = None  # where a page was found
    facts: Any = None  # what a page says about itself
    is_part: bool = False  # of a longer text


@dataclass(frozen=True)
class Skipped:
    reason: str  # the end of a sentence that begins with the file's name and `place`
    place: str = ""  # ", line 3"
    advice: str = ""
    is_empty: bool = False  # nothing is wrong with it, there is only no text
    is_aside: bool = False  # processes died of it
    is_passed_over: bool = False  # a file in an archive whose ending is not known


def read_stream(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    ending = reading.ending(name)
    if ending in LINES:
        first = reading.first_number + 1
        return _texts(read_json_lines(stream, reading.encoding, reading.most_bytes, first), reading, "line")
    if ending in JSON:
        return _texts(read_json(stream, reading.encoding, MOST_JSON, _documents_in), reading, "item")
    if ending == ".csv":
        return _table(read_quoted(stream, reading.encoding, reading.most_bytes), reading)
    if ending == ".tsv":
        return _table(read_tabbed(stream, reading.encoding, reading.most_bytes), reading)
    if ending in COLUMNS:
        return _columns(stream, reading)
    if ending in PAGES:
        return _page(stream, reading)
    if ending in CRAWLS:
        return _crawl(stream, reading)
    match reading.unit:
        case "file":
            return _whole(stream, reading) if reading.longest is None else _in_parts(stream, reading, reading.longest)
        case "line":
            return _each_line(stream, reading)
        case "block":
            return _blocks(stream, reading)


def _whole(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    data = read_whole(stream, reading.most_file)
    yield _too_large(reading.most_file) if data is None else _decoded(data, reading, 0, 0)


def _in_parts(stream: IO[bytes], reading: Reading, longest: int) -> Iterator[Found | Skipped]:
    number, before = reading.first_number, None
    for part in cut_stream(stream, longest, reading.encoding):
        if before is not None:
            yield _part(before, reading, number)
            number += 1
        before = part
    if number > 0 and before is not None:
        yield _part(before, reading, number)
    else:
        yield _decoded(before or b"", reading, 0, 0)


def _part(data: bytes, reading: Reading, number: int) -> Found | Skipped:
    found = _decoded(data, reading, number, 0)
    if isinstance(found, Skipped):
        return replace(found, place=f", part {number + 1}{found.place}")
    return replace(found, is_part=True)


def _each_line(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    for number, line in _lines(stream, reading):
        yield _too_long(reading, number) if line is None else _decoded(line.rstrip(b"\r\n"), reading, number, number)


def _blocks(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    """A block's number is that of its first line, which is known wherever reading began."""
    block: list[bytes] = []  # decoded as one, which is several times faster than line by line
    size = begins = 0
    too_long = False
    for number, line in _lines(stream, reading):
        if line is not None and BLANK.fullmatch(line):
            if block:
                yield _decoded(b"".join(block).rstrip(b"\r\n"), reading, begins, begins)
            block, size, too_long = [], 0, False
        elif not too_long:
            size += reading.most_bytes + 1 if line is None else len(line)
            if too_long := size > reading.most_bytes:
                yield _too_long(reading, number)
                block = []
            elif line is not None:
                begins = begins if block else number
                block.append(line)
    if block:
        yield _decoded(b"".join(block).rstrip(b"\r\n"), reading, begins, begins)


def _lines(stream: IO[bytes], reading: Reading) -> Iterator[tuple[int, bytes | None]]:
    return raw_lines(stream, reading.most_bytes, reading.first_number)


def _texts(records: Iterator[Record], reading: Reading, word: str) -> Iterator[Found | Skipped]:
    """Of objects, what stands at the key."""
    for number, values in records:
        place = f", {word} {number}" if number else ""
        if isinstance(values, str):
            yield Skipped(values, place)
        elif reading.text not in values:
            yield Skipped(f'is a JSON object without a "{reading.text}"', place)
        else:
            yield _checked(values[reading.text], number - 1, place)


def _documents_in(document: Any) -> Iterator[dict[str, Any] | str]:
    """A list of objects, also under "data"; or one object."""
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        document = document["data"]
    return objects_in(document if isinstance(document, list) else [document])


def _table(records: Iterator[Fields], reading: Reading) -> Iterator[Found | Skipped]:
    _, header = next(records, (0, None))
    if header is None:
        yield Skipped("is empty", is_empty=True)
        return
    if isinstance(header, str):
        raise InputError(f"the line with the names of the columns {header}.")
    column, width = _column(header, reading.text), len(header)
    for number, (line, fields) in enumerate(records):
        place = f", line {line}"
        if isinstance(fields, str):
            yield Skipped(fields, place)
        elif len(fields) != width:
            yield Skipped(f"has {len(fields)} field{'s'[: len(fields) != 1]} for {width} columns", place)
        else:
            yield _checked(fields[column].replace("\0", ""), number, place)


def _columns(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    def choose(schema: Any) -> list[str]:
        name = schema.names[_column(schema.names, reading.text)]
        kind = schema.field(name).type
        if not _is_text(kind):
            raise Unreadable(f'has a column "{name}" of {kind}, not of text')
        return [name]

    for number, values in read_parquet(stream, MOST_PACKED, choose):
        place = f", row {number}" if number else ""
        if isinstance(values, str):
            yield Skipped(values, place)
            continue
        (text,) = values.values()
        if isinstance(text, str) and len(text) > reading.most_bytes:
            yield Skipped(f"is longer than {reading.most_bytes:,} characters", place)
        else:
            yield _checked(text, number - 1, place)


def _is_text(kind: Any) -> bool:
    types = needs("pyarrow", "corpus", "to read Parquet").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)


def _column(names: list[str], wanted: str) -> int:
    names = [name.removeprefix("\ufeff").strip() for name in names]
    if wanted not in names:
        shown = ", ".join(names[:20]) or "none"
        raise InputError(f'there is no column "{wanted}"{suggest(wanted, names)}; the columns are: {shown}.')
    return names.index(wanted)


def _page(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    data = read_whole(stream, reading.most_page)
    yield _too_large(reading.most_page) if data is None else page_document(data, 0)


def page_document(
    data: bytes, number: int, address: str | None = None, charset: str | None = None, place: str = ""
) -> Found | Skipped:
    needs("lxml", "corpus", "to read pages")
    from weft.sources.pages.article import extract

    if reason := why_too_large(data):
        return Skipped(reason, place)
    article = extract(data, charset)
    if not article.text and article.is_cut:
        return Skipped("nests its elements more than 2,000 deep", place)
    if not article.text:
        return Skipped("has no article", place, is_empty=True)
    return Found(article.text, number, address, article.facts, is_part=article.is_cut)


def _crawl(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    """The pages of a WARC file (ISO 28500): the answers with status 200 that are HTML, and the texts of a WET file."""
    needs("warcio", "corpus", "to read WARC files")
    from warcio.exceptions import ArchiveLoadFailed

    number = 0
    records = _records(stream)
    while True:
        try:
            record = next(records, None)
            if record is None:
                break
            if record.length is None:  # to warcio it goes on to the end of the file
                raise ValueError("a record does not say how long it is")
            address = record.rec_headers.get_header("WARC-Target-URI")
            if address is None and record.rec_type == "response":
                yield Skipped("holds an answer without an address")
            is_text = _is_plain(record)
            if not is_text and not _is_page(record):
                continue
            data = read_whole(record.content_stream(), reading.most_page)
            is_cut = data is not None and getattr(record.raw_stream, "limit", 0) > 0
        except (ArchiveLoadFailed, EOFError, ValueError) as error:
            yield Skipped(f"is not a whole WARC file ({error})")
            return
        place = f", {address}" if address else ""
        if data is None:
            yield _too_large(reading.most_page, place)
        elif is_cut:
            yield Skipped("is cut off", place)
        elif len(data) > max(GROWTH_FROM, MOST_GROWTH * record.length):
            yield Skipped(f"grows to more than {MOST_GROWTH} times its size: it may be a bomb", place)
        elif is_text:
            found = _decoded(data, Reading(), number, 0)
            if isinstance(found, Skipped):
                yield replace(found, place=place + found.place)
            else:
                yield replace(found, address=address)
        else:
            charset = charset_of(record.http_headers.get_header("Content-Type") or "")
            yield page_document(data, number, address, charset, place)
        number += 1
    if records.err_count:
        yield Skipped(f"holds records that are longer than they say: {records.err_count:,}")


def _records(stream: IO[bytes]) -> Any:
    """warcio's iterator, which says nothing by itself: it would show what is in the file as it is on the terminal."""
    from warcio.archiveiterator import ArchiveIterator
    from warcio.recordloader import ArcWarcRecordLoader

    class Loader(ArcWarcRecordLoader):
        """Does not fall over a record without an address."""

        def load_http_headers(self, rec_type: str, uri: str | None, stream: Any, length: int | None) -> Any:
            return super().load_http_headers(rec_type, uri or "", stream, length)

    logging.getLogger("warcio").setLevel(logging.CRITICAL)
    records = ArchiveIterator(stream)
    records.INC_RECORD = ""  # its sentence about a record that is longer than it says; these are counted
    records.loader = Loader(verify_http=False, arc2warc=False)
    return records


def _is_plain(record: Any) -> bool:
    kind = record.rec_headers.get_header("Content-Type") or ""
    return record.rec_type == "conversion" and kind.startswith("text/plain")


def _is_page(record: Any) -> bool:
    if record.rec_type != "response" or record.http_headers is None or record.http_headers.get_statuscode() != "200":
        return False
    return "html" in (record.http_headers.get_header("Content-Type") or "").lower()


def charset_of(content_type: str) -> str | None:
    """Of an HTTP header: text/html; charset=utf-8."""
    found = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", content_type, re.IGNORECASE)
    return found.group(1) if found else None


def _decoded(data: bytes, reading: Reading, number: int, line: int) -> Found | Skipped:
    """`line` is where the data begins in the file, from 0."""
    if b"\x00" in data[:100_000]:
        return Skipped("is a binary file, not text", f", line {line + 1}" if line else "")
    try:
        return _checked(data.decode(reading.codec), number, f", line {line + 1}")
    except UnicodeDecodeError as error:
        above = data[: error.start].split(b"\n")
        place = f" at line {line + len(above)}, byte {len(above[-1])}"
        advice = "Convert it first, for example: iconv -f latin1 -t utf-8."
        return Skipped(f"is not {reading.encoding.upper()}{place}", advice=advice)


def _checked(text: Any, number: int, place: str) -> Found | Skipped:
    if not isinstance(text, str):
        return Skipped(f"has a text that is {type(text).__name__}, not a string", place)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # JSON can hold half of a character, which no encoding can write.
        return Skipped(f"has half of a surrogate pair as character {error.start}, which is no text", place)
    return Found(text, number)


def _too_large(most: int, place: str = "") -> Skipped:
    return Skipped(f"is longer than {most:,} bytes", place)


def _too_long(reading: Reading, line: int) -> Skipped:
    return Skipped(f"has no end in {reading.most_bytes:,} bytes", f", line {line + 1}")
