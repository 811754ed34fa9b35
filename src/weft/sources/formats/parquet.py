"""Parquet: all columns of a row, with the class names of Hugging Face's `datasets`; or only a document's text."""

import io
from collections.abc import Iterator
from typing import IO, Any

from weft.errors import needs
from weft.sources.formats.class_names import named_columns, names_in_schema
from weft.sources.formats.column_names import find_column, refuse_equal_names
from weft.sources.formats.lines import read_whole, too_long
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

_BATCH_ROWS = 64


def read_parquet(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    pyarrow = needs("pyarrow", "corpus", "to read Parquet")
    parquet = needs("pyarrow.parquet", "corpus", "to read Parquet")
    if not stream.seekable():
        data = read_whole(stream, reading.most_parquet)
        if data is None:
            yield BadRecord(f"{too_long(reading.most_parquet)}; unpack it", origin)
            return
        stream = io.BytesIO(data)
    if not stream.read(1):
        return
    try:
        schema = parquet.ParquetFile(stream).schema_arrow
        if reading.text is None:
            refuse_equal_names(schema.names)
            columns = None
        else:
            columns = [schema.names[find_column(schema.names, reading.text)]]
            if not _is_text(schema.field(columns[0]).type):
                yield BadRecord(f'has a column "{columns[0]}" of {schema.field(columns[0]).type}, not of text', origin)
                return
        classes = names_in_schema(schema.metadata) if columns is None else {}
        # As a dictionary: a value that a small file repeats many times is in memory once.
        file = parquet.ParquetFile(stream, read_dictionary=columns)
        number = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
            for row in range(batch.num_rows):
                number += 1
                yield _record(batch, row, classes, reading, origin, number)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of the name of a column
        yield BadRecord(f"is not a whole Parquet file ({str(error).splitlines()[0]})", origin)


def _record(
    batch: Any, row: int, classes: dict[str, list[str]], reading: Reading, origin: Origin, number: int
) -> Record | BadRecord:
    try:
        values = {name: batch.column(place)[row].as_py() for place, name in enumerate(batch.schema.names)}
    except ValueError as error:  # a string that is not UTF-8; a time that Python cannot represent
        return BadRecord(f"has a value that cannot be read ({error})", origin, number)
    if reading.text is None:
        return Record(named_columns(values, classes) if classes else values, origin, number)
    (text,) = values.values()
    if isinstance(text, str) and len(text) > reading.most_line:
        return BadRecord(f"is longer than {reading.most_line:,} characters", origin, number)
    return Record({reading.text: text}, origin, number)


def _is_text(kind: Any) -> bool:
    types = needs("pyarrow", "corpus", "to read Parquet").types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)
