"""`corpus:` which texts, how they are read, and how they are cleaned, deduplicated and split."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from weft.recipe.section import Section, exactly_one

Unit = Literal["file", "line", "block"]
Format = Literal["text", "jsonl", "json", "csv", "tsv", "parquet", "html", "warc", "wet"]


class ReadSection(Section):
    """Some files, and how they are read."""

    text: str = Field("text", min_length=1, description="the key of .jsonl, the column of a table, that holds the text")
    encoding: str = Field("utf-8", min_length=1, description="of text, JSON lines and tables; pages say theirs")
    documents: Unit | None = Field(None, description="as corpus.documents, for these files")
    format: Format | None = Field(
        None, description="of all these files, whatever they are called; told by their endings if left out"
    )


class SourceSection(ReadSection):
    path: str = Field(
        min_length=1,
        description="a file (text, .jsonl, .json, .csv, .parquet, pages, crawls; also packed), a folder, a pattern; "
        "with build also an http(s) address, or a .urls file with one in each line",
    )
    weight: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="its share of what training sees")
    name: str | None = Field(None, pattern=r"^\w[\w.-]{0,63}$", description="in the report; by its path if left out")


class SplitsSection(Section):
    """What is held out: below 1 a share of the text, from 1 on so many characters (of a source that is one text)."""

    validation: float = Field(default=0.05, ge=0, allow_inf_nan=False)
    test: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class CleanSection(Section):
    repair: bool = Field(True, description="mend text that was decoded wrongly (cafÃ©)")
    form: Literal["NFC", "NFKC"] | None = Field("NFC", description="Unicode's normal form; null: as it is")
    mask: bool = Field(
        False, description="put <email>, <phone>, <card>, <iban>, <id> for people's addresses and numbers"
    )


class FilterSection(Section):
    """Documents beyond these are dropped. What is left out is as usual for the language; null switches a rule off."""

    least_words: int | None = Field(None, ge=0, description="characters or letters, where words are not written apart")
    most_words: int | None = Field(None, ge=1)
    word_length: list[float] | None = Field(None, min_length=2, max_length=2, description="on average, from … to …")
    symbols: float | None = Field(None, ge=0, description="hashes and ellipses, to words")
    digits: float | None = Field(None, ge=0, le=1, description="of all characters")
    bullets: float | None = Field(None, ge=0, le=1, description="of lines, that begin with one")
    ellipses: float | None = Field(None, ge=0, le=1, description="of lines, that end in one")
    letters: float | None = Field(None, ge=0, le=1, description="of words, that hold one; at the least")
    stop_words: int | None = Field(None, ge=0, description="different ones, at the least")
    repeated_lines: float | None = Field(None, ge=0, le=1)
    repeated_line_text: float | None = Field(None, ge=0, le=1, description="of all characters")
    repeated_paragraphs: float | None = Field(None, ge=0, le=1)
    repeated_paragraph_text: float | None = Field(None, ge=0, le=1, description="of all characters")
    common_rows: list[list[float]] | None = Field(
        None, description="[words, share] each: the commonest row of so many words, of all characters"
    )
    repeated_rows: list[list[float]] | None = Field(
        None, description="[words, share] each: rows of so many words that came before, of all characters"
    )

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.word_length is not None and not self.word_length[0] <= self.word_length[1]:
            raise ValueError("word_length is the shortest and the longest, such as [3, 10]")
        for rows in (self.common_rows or (), self.repeated_rows or ()):
            if any(len(pair) != 2 or not 1 <= pair[0] <= 1000 or pair[0] % 1 or not pair[1] >= 0 for pair in rows):
                raise ValueError("rows are pairs of words and a share, such as [[2, 0.2], [3, 0.18]]")
        return self


class DeduplicateSection(Section):
    exact: bool = Field(True, description="the same text, whatever the case and white space")
    near: bool = Field(True, description="nearly the same words and symbols, by MinHash")
    keep: Literal["best", "all"] = Field(
        "best", description="of copies: the longest; or all, and no two of them on different sides of the split"
    )


class TestSetSection(ReadSection):
    path: str = Field(min_length=1, description="a file, a folder, a pattern")


class DecontaminateSection(Section):
    """Documents that share n-grams with these texts would make a test on them worthless (Brown et al. 2020)."""

    against: list[TestSetSection] = Field(min_length=1)
    words: int = Field(13, ge=4, le=100, description="of an n-gram; twice as many characters, four times letters")
    least_words: int = Field(8, ge=1, le=100, description="shorter test texts are looked for as a whole from here on")
    action: Literal["cut", "drop", "flag"] = Field(
        "cut", description="cut the place out, drop the document, or flag it (contaminated: true)"
    )
    window: int = Field(200, ge=0, le=100_000, description="characters cut out on each side; shorter pieces go, too")
    most_pieces: int = Field(10, ge=1, description="a document that would be in more is dropped")
    most_documents: int = Field(10, ge=1, description="n-grams that more documents share are ignored")


class FetchSection(Section):
    """How pages are asked for. robots.txt is obeyed."""

    delay: float = Field(1.0, ge=0, le=600, allow_inf_nan=False, description="seconds between two pages of a server")
    timeout: float = Field(20.0, gt=0, le=600, allow_inf_nan=False, description="seconds a page may take")
    most_bytes: int = Field(10_000_000, ge=1, description="of a page")
    agent: str = Field("weft", pattern=r"^[A-Za-z][\w./() +;:@-]{0,199}$", description="what weft calls itself")
    inside: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,260}$")]] = Field(
        [],
        description="hosts of your own network that may be asked, as wiki.local or 127.0.0.1:8000; all others may not",
    )


class BuildSection(Section):
    """How the text is prepared before anything is learnt from it."""

    languages: list[str] | None = Field(None, min_length=1, description="those to keep, as en, zh; all if left out")
    clean: CleanSection = CleanSection()
    filter: FilterSection | None = Field(FilterSection(), description="null: drop nothing for its quality")
    deduplicate: DeduplicateSection = DeduplicateSection()
    decontaminate: DecontaminateSection | None = None
    fetch: FetchSection = FetchSection()
    seed: int = Field(0, ge=0, lt=2**31, description="of the split")


class CorpusSection(Section):
    """Either `sources`, which are split here, or `path`, a folder with train, validation and test in it."""

    sources: list[SourceSection] | None = Field(None, min_length=1)
    path: str | None = Field(None, min_length=1, description="a built corpus: train.*, validation.*, test.*")
    splits: SplitsSection = SplitsSection()
    documents: Unit | None = Field(
        None, description="what a document of a .txt file is: the file, a line, or a block between blank lines"
    )
    build: BuildSection | None = Field(
        None, description="clean, filter and deduplicate the text first; {}: with everything as usual"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and self.build is not None:
            raise ValueError("build goes with sources; a corpus that is loaded by its path is built already")
        return exactly_one(self, "sources", "path")
