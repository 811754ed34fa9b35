"""Reads and writes Parquet in bounded memory. The same rows give the same bytes."""

from pathlib import Path
from types import TracebackType
from typing import Any

from weft.errors import needs

pyarrow = needs("pyarrow", "corpus", "to build a corpus")
parquet = needs("pyarrow.parquet", "corpus", "to build a corpus")

_GROUP_CHARACTERS, _GROUP_ROWS = 4_000_000, 20_000  # of a row group, held in memory
LINEAGE_FIELDS = [
    ("source", pyarrow.string()),
    ("file", pyarrow.string()),
    ("member", pyarrow.string()),  # of an archive
    ("number", pyarrow.int64()),  # of its line, row or page, or of the first line of a block, from 0
]
TEXT_SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.string()),  # hash of the text, ignoring case and white space
        ("text", pyarrow.large_string()),
        *LINEAGE_FIELDS,
        ("address", pyarrow.string()),
        ("title", pyarrow.string()),
        ("author", pyarrow.string()),
        ("date", pyarrow.string()),
        ("language", pyarrow.string()),
        ("changes", pyarrow.list_(pyarrow.string())),  # changes by cleaning: repaired, invisible, normalised …
        ("contaminated", pyarrow.bool_()),
    ]
)
DROPPED_SCHEMA = pyarrow.schema(
    [
        *LINEAGE_FIELDS,
        ("reason", pyarrow.string()),
        ("detail", pyarrow.string()),  # why it could not be read, or the id of the document it duplicates
        ("characters", pyarrow.int64()),
    ]
)


class ParquetTable:
    """Writes rows to a file. Without rows no file is written."""

    def __init__(self, file: Path, schema: Any) -> None:
        self.file, self.schema = file, schema
        self.rows: list[dict[str, Any]] = []
        self.letters = 0
        self.writer: Any = None

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.letters += len(row.get("text", ""))
        if self.letters >= _GROUP_CHARACTERS or len(self.rows) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self.rows:
            return
        if self.writer is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.writer = parquet.ParquetWriter(self.file, self.schema, compression="zstd")
        self.writer.write_table(pyarrow.Table.from_pylist(self.rows, schema=self.schema))
        self.rows, self.letters = [], 0

    def __enter__(self) -> "ParquetTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        if self.writer is not None:
            self.writer.close()


def rows_of_file(file: Path) -> Any:
    """Yields the rows of a file; none if it does not exist."""
    if not file.is_file():
        return
    for batch in parquet.ParquetFile(file).iter_batches(256):
        yield from batch.to_pylist()
