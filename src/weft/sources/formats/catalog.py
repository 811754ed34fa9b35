"""The table of formats: their names, the endings they are known by, and the functions that read them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from weft.recipe.corpus import Unit
from weft.sources.archives import COMPRESSED, inner_name, is_archive
from weft.sources.formats.conll import read_conll, read_conllu
from weft.sources.formats.delimited import read_csv, read_tsv
from weft.sources.formats.json_records import read_json_file, read_json_lines
from weft.sources.formats.pages import read_crawl, read_page
from weft.sources.formats.parquet import read_parquet
from weft.sources.formats.text import read_text_file
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

Reader = Callable[[IO[bytes], Reading, Origin], Iterator[Record | BadRecord]]


@dataclass(frozen=True)
class FileFormat:
    name: str  # as in `format: jsonl`
    endings: tuple[str, ...]
    read: Reader
    unit: str = "line"  # what its records are numbered by
    for_documents: bool = True
    for_rows: bool = True
    has_columns: bool = True  # a document is the column `Reading.text`; otherwise it is the column "text"
    counts_rows: bool = False  # a document's number is that of its row, not that of the line where it begins
    is_plain: bool = True  # a file has about as many bytes as its text

    @property
    def is_text(self) -> bool:
        return self.read is read_text_file


def _pages(name: str, endings: tuple[str, ...], read: Reader) -> FileFormat:
    return FileFormat(name, endings, read, "page", for_rows=False, has_columns=False, is_plain=False)


_CONLL = (".conll", ".iob", ".iob2", ".bio", ".ner", ".bioes", ".tags", ".annotated", ".pos")
TEXT = FileFormat("text", (".txt", ".text"), read_text_file, has_columns=False)
CONLL = FileFormat("conll", _CONLL, read_conll, for_documents=False)
FORMATS = (
    FileFormat("csv", (".csv",), read_csv, counts_rows=True),
    FileFormat("tsv", (".tsv",), read_tsv, counts_rows=True),
    FileFormat("jsonl", (".jsonl", ".ndjson"), read_json_lines),
    FileFormat("json", (".json",), read_json_file, unit="item"),
    FileFormat("parquet", (".parquet",), read_parquet, unit="row", is_plain=False),
    CONLL,
    FileFormat("conllu", (".conllu",), read_conllu, for_documents=False),
    TEXT,
    # Beside a data set it is a README or a licence: not rows.
    FileFormat("markdown", (".md",), read_text_file, has_columns=False, for_rows=False),
    _pages("html", (".html", ".htm", ".xhtml"), read_page),
    _pages("warc", (".warc",), read_crawl),
    _pages("wet", (".wet",), read_crawl),
)
DOCUMENT_FORMATS = {ending: one for one in FORMATS if one.for_documents for ending in one.endings}
ROW_FORMATS = {ending: one for one in FORMATS if one.for_rows for ending in one.endings}
_BY_NAME = {one.name: one for one in FORMATS}


def format_named(name: str) -> FileFormat:
    return _BY_NAME[name]


def ending_of(name: str) -> str:
    """In lower case, without the ending of compression: `.jsonl` of `News.JSONL.gz`."""
    return PurePosixPath(inner_name(name)).suffix.lower()


def document_format(name: str, reading: Reading) -> FileFormat:
    """A file whose ending is unknown is text."""
    return _BY_NAME[reading.format] if reading.format else DOCUMENT_FORMATS.get(ending_of(name), TEXT)


def cut_unit(name: str, reading: Reading) -> Unit | None:
    """Between what a file can be cut into ranges: lines, blocks, or the parts of a long text (file). None: nowhere."""
    if is_archive(name) or PurePosixPath(name).suffix.lower() in COMPRESSED:
        return None
    form = document_format(name, reading)
    if form.read is read_json_lines:
        return "line"
    if not form.is_text or (reading.unit == "file" and reading.longest is None):
        return None
    return reading.unit
