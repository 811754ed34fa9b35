"""How a file is read: its format and encoding, what a document is, and the limits on what comes from outside."""

from dataclasses import dataclass
from functools import cached_property

from weft.recipe.corpus import Unit
from weft.sources.encoding import codec_of


@dataclass(frozen=True)
class Reading:
    """Raises InputError if the encoding is unknown or cannot be read in lines."""

    unit: Unit = "file"  # what a record of a text file is
    text: str | None = "text"  # the column or key with a document's text; None: records keep all columns
    encoding: str = "utf-8"  # of text, JSON and tables; pages declare theirs
    format: str | None = None  # for all files; None: by their endings
    header: tuple[str, ...] | None = None  # column names of tables; None: their first line has them
    longest: int | None = None  # longer documents are cut into parts of so many bytes
    first_number: int = 0  # of the line or part where a range of a file begins
    most_line: int = 2**25  # bytes of a line or a row
    most_page: int = 10_000_000  # bytes
    most_text: int = 2**33  # bytes of a text file that is one document
    most_json: int = 2**26  # bytes of a .json file: it is in memory as a whole
    most_parquet: int = 2**28  # bytes of a compressed .parquet file: likewise

    def __post_init__(self) -> None:
        _ = self.codec

    @cached_property
    def codec(self) -> str:
        """Decodes the beginning of a file: removes a byte-order mark."""
        return codec_of(self.encoding)
