"""Documents out of a stream, by the ending of its name: text, JSON lines, tables, pages, crawls.

A document that cannot be read is `Skipped`, with its place and the reason, and the reader goes on. Who wants all or
nothing raises at the first.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any

from weft.errors import InputError, needs, suggest
from weft.recipe import Unit

TEXT, LINES, TABLES = (".txt", ".md", ".text"), (".jsonl", ".ndjson"), (".csv", ".tsv")
PAGES, CRAWLS, COLUMNS = (".html", ".htm", ".xhtml"), (".warc",), (".parquet",)
FORMATS = (*TEXT, *LINES, *TABLES, *COLUMNS, *PAGES, *CRAWLS)
SPACES = [chr(number) for number in range(0x3001) if chr(number).isspace()]
BLANK = re.compile(b"(?:" + b"|".join(re.escape(space.encode()) for space in [*SPACES, "\ufeff"]) + b")*")
NOT_OF_TEXT = frozenset(("utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"))
ROWS = 64  # of Parquet, at a time
PIECE = 2**20


@dataclass(frozen=True)
class Reading:
    """How a source is to be read."""

    unit: Unit = "file"  # what a document of a text file is
    text: str = "text"  # the key or column that holds the text
    encoding: str = "utf-8"  # of text, JSON lines and tables; pages say theirs
    most_bytes: int = 2**28  # of a line, a row, a page
    most_file: int = 2**33  # of a text file that is one document
    first_line: int = 0  # where reading begins, if not at the beginning of the file

    def __post_init__(self) -> None:
        try:
            name = codecs.lookup(self.encoding).name
            lines = "a\nb".encode(name)
            is_plain = lines == b"a\nb" and lines.decode(name) == "a\nb"
        except (LookupError, UnicodeError, ValueError, TypeError):
            raise InputError(f"There is no encoding {self.encoding!r} of text; some are utf-8, latin-1, gbk.") from None
        if not is_plain or name in NOT_OF_TEXT:
            raise InputError(
                f"{self.encoding} cannot be read in lines. Convert it first: iconv -f {self.encoding} -t utf-8."
            )

    @cached_property
    def codec(self) -> str:
        """Takes a byte-order mark away, where there may be one."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding


@dataclass(frozen=True)
class Found:
    text: str
    number: int  # of the document in its file, from 0: of its line, its row, its page
    address: str | None = None  # where a page was found
    facts: Any = None  # what a page says about itself


@dataclass(frozen=True)
class Skipped:
    reason: str  # the end of a sentence that begins with the file's name and `place`
    place: str = ""  # ", line 3"
    advice: str = ""
    is_empty: bool = False  # nothing is wrong with it, there is only no text


def read_stream(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    ending = PurePosixPath(name).suffix.lower()
    if ending in LINES:
        return _json_lines(stream, reading)
    if ending in TABLES:
        return _table(stream, reading, "\t" if ending == ".tsv" else ",")
    if ending in COLUMNS:
        return _columns(stream, reading)
    if ending in PAGES:
        return _page(stream, reading)
    if ending in CRAWLS:
        return _crawl(stream, reading)
    match reading.unit:
        case "file":
            return _whole(stream, reading)
        case "line":
            return _each_line(stream, reading)
        case "block":
            return _blocks(stream, reading)


def _whole(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    data = read_whole(stream, reading.most_file)
    yield _too_large(reading.most_file) if data is None else _decoded(data, reading, 0, 0)


def read_whole(stream: IO[bytes], most: int) -> bytes | None:
    """All there is, if it is not too much; in pieces, as a buffer of `most` would be allocated at once."""
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return None
    return b"".join(pieces)


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
    """None for a line that is too long; the rest of it is passed over without being kept."""
    number, most = reading.first_line, reading.most_bytes
    while line := stream.readline(most + 1):
        if len(line) <= most:
            yield number, line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(2**20)
            yield number, None
        number += 1


def _json_lines(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    for number, line in _lines(stream, reading):
        if line is None:
            yield _too_long(reading, number)
            continue
        if not line.strip():
            continue
        place = f", line {number + 1}"
        decoded = _decoded(line, reading, number, number)
        if isinstance(decoded, Skipped):
            yield decoded
            continue
        try:
            text = json.loads(decoded.text)[reading.text]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            yield Skipped(f'is not a JSON object with a "{reading.text}"', place)
            continue
        yield _checked(text, number, place)


def _table(stream: IO[bytes], reading: Reading, comma: str) -> Iterator[Found | Skipped]:
    too_long: list[Skipped] = []

    def lines() -> Iterator[str]:
        for number, line in _lines(stream, reading):
            if line is None:
                too_long.append(_too_long(reading, number))
            else:
                mark = codecs.BOM_UTF8 if number == 0 else b""
                yield line.removeprefix(mark).decode(reading.encoding, "surrogateescape").replace("\0", "")

    csv.field_size_limit(reading.most_bytes)
    rows = csv.reader(lines(), delimiter=comma)
    try:
        header = next(rows, None)
        if header is None:
            yield Skipped("is empty", is_empty=True)
            return
        column = _column(header, reading.text)
    except csv.Error as error:
        raise InputError(f"this is not a table ({error}).") from None
    number = 0
    while True:
        place = f", row {number + 2}"
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            yield Skipped(f"is not a row of a table ({error})", place)
            row = []
        yield from too_long
        too_long.clear()
        if row:
            has_text = column < len(row)
            yield _checked(row[column], number, place) if has_text else Skipped(f"has no {reading.text}", place)
        number += 1
    yield from too_long


def _columns(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    pyarrow = needs("pyarrow", "corpus", "to read Parquet")
    parquet = needs("pyarrow.parquet", "corpus", "to read Parquet")
    if not stream.seekable():
        data = read_whole(stream, reading.most_bytes)
        if data is None:
            yield _too_large(reading.most_bytes)
            return
        stream = io.BytesIO(data)
    try:
        names = parquet.ParquetFile(stream).schema_arrow.names
        column = names[_column(names, reading.text)]
        kind = parquet.ParquetFile(stream).schema_arrow.field(column).type
        if not _is_text(kind, pyarrow.types):
            yield Skipped(f'has a column "{column}" of {kind}, not of text')
            return
        # As a dictionary: a value that a small file repeats many times is in memory once.
        file = parquet.ParquetFile(stream, read_dictionary=[column])
        number = 0
        for batch in file.iter_batches(ROWS, columns=[column]):
            for value in batch.column(0):
                yield _value(value, number, reading)
                number += 1
    except (pyarrow.ArrowException, OSError) as error:
        yield Skipped(f"is not a whole Parquet file ({str(error).splitlines()[0]})")


def _is_text(kind: Any, types: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)


def _value(value: Any, number: int, reading: Reading) -> Found | Skipped:
    place = f", row {number + 1}"
    try:
        text = value.as_py()
    except UnicodeDecodeError:
        return Skipped("is not UTF-8", place)
    if isinstance(text, str) and len(text) > reading.most_bytes:
        return Skipped(f"is longer than {reading.most_bytes:,} characters", place)
    return _checked(text, number, place)


def _column(names: list[str], wanted: str) -> int:
    names = [name.removeprefix("\ufeff").strip() for name in names]
    if wanted not in names:
        shown = ", ".join(names[:20]) or "none"
        raise InputError(f'there is no column "{wanted}"{suggest(wanted, names)}; the columns are: {shown}.')
    return names.index(wanted)


def _page(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    data = read_whole(stream, reading.most_bytes)
    yield _too_large(reading.most_bytes) if data is None else page_document(data, 0)


def page_document(
    data: bytes, number: int, address: str | None = None, charset: str | None = None, place: str = ""
) -> Found | Skipped:
    needs("lxml", "corpus", "to read pages")
    from weft.corpus.article import extract

    article = extract(data, charset)
    if not article.text:
        return Skipped("has no article", place, is_empty=True)
    return Found(article.text, number, address, article.facts)


def _crawl(stream: IO[bytes], reading: Reading) -> Iterator[Found | Skipped]:
    """The pages of a WARC file (ISO 28500): the answers with status 200 that are HTML."""
    needs("warcio", "corpus", "to read WARC files")
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    number = 0
    records = iter(ArchiveIterator(stream))
    while True:
        try:
            record = next(records, None)
            if record is None:
                return
            if not _is_page(record):
                continue
            kind = record.http_headers.get_header("Content-Type") or ""
            address = record.rec_headers.get_header("WARC-Target-URI")
            data = read_whole(record.content_stream(), reading.most_bytes)
            is_cut = data is not None and getattr(record.raw_stream, "limit", 0) > 0
        except (ArchiveLoadFailed, EOFError, ValueError) as error:
            yield Skipped(f"is not a whole WARC file ({error})")
            return
        place = f", {address}"
        if data is None:
            yield _too_large(reading.most_bytes, place)
        elif is_cut:
            yield Skipped("is cut off", place)
        else:
            yield page_document(data, number, address, charset_of(kind), place)
        number += 1


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
        if "\udc80" <= text[error.start] <= "\udcff":  # so a byte of a table that is not in the encoding was kept
            return Skipped(f"is not in the encoding at character {error.start}", place)
        # JSON can hold half of a character, which no encoding can write.
        return Skipped(f"has half of a surrogate pair as character {error.start}, which is no text", place)
    return Found(text, number)


def _too_large(most: int, place: str = "") -> Skipped:
    return Skipped(f"is longer than {most:,} bytes", place)


def _too_long(reading: Reading, line: int) -> Skipped:
    return Skipped(f"has no end in {reading.most_bytes:,} bytes", f", line {line + 1}")
