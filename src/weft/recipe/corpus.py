"""The `corpus:` section: which texts to read, and how to clean, deduplicate and split them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from weft.recipe.section import Section, exactly_one

Unit = Literal["file", "line", "block"]
Format = Literal["text", "jsonl", "json", "csv", "tsv", "parquet", "html", "warc", "wet"]


class ReadSection(Section):
    """How files are read."""

    text: str = Field("text", min_length=1, description="JSON key or table column that holds the text")
    encoding: str = Field(
        "utf-8",
        min_length=1,
        description="character encoding of text, JSON lines and tables; web pages declare their own",
    )
    documents: Unit | None = Field(None, description="as corpus.documents, for these files only")
    format: Format | None = Field(
        None, description="format of all these files; default: inferred from each file's extension"
    )


class SourceSection(ReadSection):
    path: str = Field(
        min_length=1,
        description="file (text, .jsonl, .json, .csv, .tsv, .parquet, .html, .warc, .wet; may be compressed), folder "
        "or glob pattern; with build also an http(s) address, or a .urls file with one address per line",
    )
    weight: float = Field(
        1.0,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="how often training samples this source, relative to the other sources",
    )
    name: str | None = Field(
        None, pattern=r"^\w[\w.-]{0,63}$", description="name in the report; default: taken from the path"
    )


class SplitsSection(Section):
    """How much text is held out. Below 1: a share. 1 or more: a number of characters, for sources that are one text."""

    validation: float = Field(
        default=0.05, ge=0, allow_inf_nan=False, description="share held out for validation, or number of characters"
    )
    test: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="share held out for testing, or number of characters"
    )


class CleanSection(Section):
    repair: bool = Field(True, description="repair text that was decoded with the wrong encoding (cafÃ© becomes café)")
    form: Literal["NFC", "NFKC"] | None = Field("NFC", description="Unicode normal form; null: none")
    mask: bool = Field(False, description="replace personal data with <email>, <phone>, <card>, <iban> and <id>")


class FilterSection(Section):
    """Thresholds of the quality rules. The defaults depend on the language. null switches a rule off."""

    least_words: int | None = Field(
        None, ge=0, description="minimum words per document (characters or letters in scripts without spaces)"
    )
    most_words: int | None = Field(None, ge=1, description="maximum words per document")
    word_length: list[float] | None = Field(
        None, min_length=2, max_length=2, description="allowed mean word length, such as [3, 10]"
    )
    symbols: float | None = Field(None, ge=0, description="maximum hash signs and ellipses per word")
    digits: float | None = Field(None, ge=0, le=1, description="largest share of characters that are digits")
    bullets: float | None = Field(None, ge=0, le=1, description="largest share of lines that begin with a bullet")
    ellipses: float | None = Field(None, ge=0, le=1, description="largest share of lines that end with an ellipsis")
    letters: float | None = Field(None, ge=0, le=1, description="smallest share of words that contain a letter")
    stop_words: int | None = Field(None, ge=0, description="minimum number of different stop words")
    repeated_lines: float | None = Field(
        None, ge=0, le=1, description="largest share of lines that repeat an earlier one"
    )
    repeated_line_text: float | None = Field(
        None, ge=0, le=1, description="largest share of characters in repeated lines"
    )
    repeated_paragraphs: float | None = Field(
        None, ge=0, le=1, description="largest share of paragraphs that repeat an earlier one"
    )
    repeated_paragraph_text: float | None = Field(
        None, ge=0, le=1, description="largest share of characters in repeated paragraphs"
    )
    common_rows: list[list[float]] | None = Field(
        None,
        description="[n, share] pairs: largest share of characters in the most frequent n-gram, such as [[2, 0.2]]",
    )
    repeated_rows: list[list[float]] | None = Field(
        None,
        description="[n, share] pairs: largest share of characters in repeated n-grams, such as [[5, 0.15]]",
    )

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.word_length is not None and not self.word_length[0] <= self.word_length[1]:
            raise ValueError("word_length is the smallest and the largest mean, such as [3, 10]")
        for rows in (self.common_rows or (), self.repeated_rows or ()):
            if any(len(pair) != 2 or not 1 <= pair[0] <= 1000 or pair[0] % 1 or not pair[1] >= 0 for pair in rows):
                raise ValueError(
                    "common_rows and repeated_rows are pairs of n and a share, such as [[2, 0.2], [3, 0.18]]"
                )
        return self


class DeduplicateSection(Section):
    exact: bool = Field(True, description="drop documents with the same text, ignoring case and white space")
    near: bool = Field(True, description="drop near duplicates, found by MinHash")
    keep: Literal["best", "all"] = Field(
        "best", description="best: keep the longest of each group of duplicates; all: keep all, in the same split"
    )


class TestSetSection(ReadSection):
    path: str = Field(min_length=1, description="file, folder or glob pattern")


class DecontaminateSection(Section):
    """Removes text that the corpus shares with test sets (Brown et al. 2020)."""

    against: list[TestSetSection] = Field(min_length=1, description="test sets, such as [{path: test.jsonl}]")
    words: int = Field(
        13,
        ge=4,
        le=100,
        description="n-gram length in words; in Chinese twice as many characters, in Thai four times as many letters",
    )
    least_words: int = Field(8, ge=1, le=100, description="test texts with fewer words than this are not searched for")
    action: Literal["cut", "drop", "flag"] = Field(
        "cut", description="cut: remove the shared text; drop: drop the document; flag: set contaminated: true"
    )
    window: int = Field(
        200,
        ge=0,
        le=100_000,
        description="characters removed on each side of a match; remaining pieces shorter than this are dropped",
    )
    most_pieces: int = Field(10, ge=1, description="a document that would be cut into more pieces than this is dropped")
    most_documents: int = Field(
        10, ge=1, description="n-grams that occur in more documents than this are common phrases and stay"
    )


class FetchSection(Section):
    """How web pages are fetched. robots.txt is obeyed."""

    delay: float = Field(1.0, ge=0, le=600, allow_inf_nan=False, description="seconds between two requests to a server")
    timeout: float = Field(20.0, gt=0, le=600, allow_inf_nan=False, description="timeout of a request, in seconds")
    most_bytes: int = Field(10_000_000, ge=1, description="largest page, in bytes")
    agent: str = Field(
        "weft",
        pattern=r"^[A-Za-z][\w./() +;:@-]{0,199}$",
        description="User-Agent, and the name looked up in robots.txt",
    )
    inside: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,260}$")]] = Field(
        [],
        description="hosts in your own network that weft may fetch from, such as wiki.local or 127.0.0.1:8000",
    )


class BuildSection(Section):
    """How the text is prepared before training."""

    languages: list[str] | None = Field(
        None, min_length=1, description="languages to keep, such as [en, zh]; default: all"
    )
    clean: CleanSection = Field(CleanSection(), description="how the text is cleaned")
    filter: FilterSection | None = Field(FilterSection(), description="quality rules; null: none")
    deduplicate: DeduplicateSection = Field(DeduplicateSection(), description="which duplicates are dropped")
    decontaminate: DecontaminateSection | None = Field(None, description="test sets to keep out of the corpus")
    fetch: FetchSection = Field(FetchSection(), description="how web pages are fetched")
    seed: int = Field(0, ge=0, lt=2**31, description="random seed of the split")


class CorpusSection(Section):
    """Either `sources`, which weft splits, or `path`, a folder already split into train, validation and test."""

    sources: list[SourceSection] | None = Field(
        None, min_length=1, description="texts to read, such as [{path: my.txt}]"
    )
    path: str | None = Field(
        None, min_length=1, description="folder with train.*, validation.* and test.*, or a corpus built by weft"
    )
    splits: SplitsSection = Field(SplitsSection(), description="how much is held out")
    documents: Unit | None = Field(
        None,
        description="what is one document of a text file: the file, a line, a block between blank lines; default: file",
    )
    build: BuildSection | None = Field(
        None, description="clean, filter and deduplicate the text first; {} uses the default settings"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and self.build is not None:
            raise ValueError("build needs sources; a corpus loaded by path is already built")
        return exactly_one(self, "sources", "path")
