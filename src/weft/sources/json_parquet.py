"""Records of JSON lines, JSON and Parquet, each with its number (of its line; of the record where there are no lines).

A record that cannot be used comes as the reason instead, the end of a sentence that begins with its place, and reading
goes on; number 0 stands for the file as a whole.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

from weft.errors import needs
from weft.sources.lines import MOST_DOCUMENT, read_document, read_lines, read_whole

Values = dict[str, Any] | str  # of a record, or why there are none
Record = tuple[int, Values]
SOME_ROWS = 64  # of Parquet, at a time


class Unreadable(Exception):
    """The file cannot be used; the message is the reason."""


def read_json_lines(stream: IO[bytes], encoding: str, most: int | None = None, first: int = 1) -> Iterator[Record]:
    for line in read_lines(stream, encoding, most, first):
        if line.fault:
            yield line.number, line.fault
        elif line.text.strip():
            value, fault = _parsed(line.text)
            yield line.number, fault or _object(value, _may_be_half(line.text))


def read_json(
    stream: IO[bytes], encoding: str, most: int | None, unfold: Callable[[Any], Iterable[Values]]
) -> Iterator[Record]:
    """`unfold` gives the records of the whole document. JSON lines under this name are read as such."""
    text, fault = read_document(stream, encoding, most or MOST_DOCUMENT)
    if fault or not text.strip():
        if fault:
            yield 0, fault
        return
    document, fault = _parsed(text)
    if fault.startswith("is not JSON (Extra data"):
        yield from read_json_lines(io.BytesIO(text.encode()), "utf-8")
        return
    if fault:
        yield 0, fault
        return
    may_be_half = _may_be_half(text)
    for number, values in enumerate(unfold(document), start=1):
        yield number, values if isinstance(values, str) else _object(values, may_be_half)


def objects_in(items: Iterable[Any]) -> Iterator[Values]:
    for item in items:
        yield item if isinstance(item, dict) else _no_object(item)


def _no_object(value: Any) -> str:
    return f"is not a JSON object, but a {type(value).__name__}"


def _parsed(text: str) -> tuple[Any, str]:
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        return None, f"is not JSON ({error.msg} at character {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; a bottomless nest
        return None, f"is not JSON that can be read ({error})"


def _may_be_half(text: str) -> bool:
    """Whether there is an escape in it that stands for half a character, which no encoding can write; its other half
    may be there too.
    """
    return "\\ud" in text or "\\uD" in text


def _object(value: Any, may_be_half: bool) -> Values:
    if not isinstance(value, dict):
        return _no_object(value)
    if may_be_half:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "has half of a surrogate pair, which is no text"
    return value


def read_parquet(
    stream: IO[bytes], most: int | None, choose: Callable[[Any], Sequence[str] | None]
) -> Iterator[Record]:
    """`choose` gets the Arrow schema and names the columns to read (None: all), or raises `Unreadable`."""
    pyarrow = needs("pyarrow", "corpus", "to read Parquet")
    parquet = needs("pyarrow.parquet", "corpus", "to read Parquet")
    most = most or MOST_DOCUMENT
    if not stream.seekable():
        data = read_whole(stream, most)
        if data is None:
            yield 0, f"is longer than {most:,} bytes; unpack it"
            return
        stream = io.BytesIO(data)
    if not stream.read(1):
        return
    try:
        columns = choose(parquet.ParquetFile(stream).schema_arrow)
        # As a dictionary: a value that a small file repeats many times is in memory once.
        file = parquet.ParquetFile(stream, read_dictionary=columns)
        number = 0
        for batch in file.iter_batches(SOME_ROWS, columns=columns):
            for row in range(batch.num_rows):
                number += 1
                yield number, _taken(batch, row)
    except Unreadable as reason:
        yield 0, str(reason)
    except (pyarrow.ArrowException, OSError) as error:
        yield 0, f"is not a whole Parquet file ({str(error).splitlines()[0]})"


def _taken(batch: Any, row: int) -> Values:
    try:
        return {name: batch.column(place)[row].as_py() for place, name in enumerate(batch.schema.names)}
    except ValueError as error:  # a string that is not UTF-8; a time that Python cannot tell
        return f"has a value that cannot be read ({error})"
