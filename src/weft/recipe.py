"""What a recipe may say: a section per stage, strictly typed. `schema()` is the JSON Schema for editors.

`recipe_file.py` reads it from YAML.
"""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

SectionKind = TypeVar("SectionKind", bound=BaseModel)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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
        return _exactly_one(self, "sources", "path")


class TokenizerSection(Section):
    """Either `kind`, and it is trained on the corpus, or `path` to an existing one."""

    kind: Literal["bpe", "wordpiece", "unigram", "char"] | None = None
    path: str | None = Field(None, min_length=1, description="a folder with a tokenizer.json, or BERT's or GPT-2's own")
    vocab_size: int | None = Field(None, ge=1, description="tokens, special ones included; char takes all there are")
    cased: bool = Field(False, description="WordPiece: keep upper case and accents")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and self.vocab_size is not None:
            raise ValueError("vocab_size goes with kind; a tokenizer that is loaded has its size")
        return _exactly_one(self, "kind", "path")


class ModelSection(BaseModel):
    """What to build. Other keys are the family's own settings (`theta`, `window`, `dropout` …)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    family: str | None = Field(
        None, description="bert, roberta, distilbert, gpt2, t5, transformer, llama, qwen3, modernbert or lstm"
    )
    path: str | None = Field(None, min_length=1, description="a model folder whose training goes on")
    size: str | None = Field(None, description="a published size of the family: base, mini, gpt3-175b …")
    head: str | None = Field(
        None, description="masked, causal, seq2seq, sequence, token, span …; the family's own if left out"
    )
    labels: int = Field(2, ge=1, description="how many labels a sequence or token head has")
    vocabulary: int | None = Field(None, ge=1, description="tokens in the vocabulary")
    layers: int | None = Field(None, ge=1, description="blocks on top of each other")
    width: int | None = Field(None, ge=1, description="numbers per token")
    heads: int | None = Field(None, ge=1, description="attention heads")
    positions: str | int | None = Field(
        None, description="learned, sinusoidal, rotary or relative; or how many there are"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and (others := self.model_fields_set - {"path"} | set(self.model_extra or {})):
            raise ValueError(f"a model that is loaded by its path has its settings: leave out {min(others)}")
        return _exactly_one(self, "family", "path")

    def settings(self) -> dict[str, Any]:
        """What was said, for `families.design`."""
        return {key: value for key, value in self.model_dump().items() if value is not None}


Objective = Literal["causal", "masked", "masked+next-sentence", "masked+sentence-order", "span"]


class PretrainSection(Section):
    """What is learnt, for how long, and how. What is left out is chosen; the run folder's recipe.yml says what."""

    objective: Objective | None = Field(None, description="the family's own if left out")
    budget: str = Field("20m", description="20m (or 90s, 2h), 2000 steps, 50M tokens or 3 epochs")
    sequence_length: int | None = Field(None, ge=4, le=1_000_000, description="tokens, special ones included")
    batch_tokens: int | None = Field(None, ge=1, description="tokens in a step")
    accumulation: int = Field(1, ge=1, description="pieces a step is cut into, to save memory")
    optimizer: Literal["adamw", "muon"] = "muon"
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="AdamW's peak")
    matrix_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="Muon's peak, for matrices")
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)
    schedule: Literal["cosine", "linear", "wsd"] = "wsd"
    decay: float | None = Field(
        None, gt=0, le=1, description="wsd: the share of the steps in which the rate falls to 0"
    )
    warmup: float = Field(0.02, ge=0, allow_inf_nan=False, description="below 1 a share of the steps, else steps")
    clip: float = Field(1.0, ge=0, allow_inf_nan=False, description="longest gradient; 0: as it is")
    dropout: float | None = Field(None, ge=0, lt=1, description="while pre-training; none unless asked for")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    mask_share: float = Field(0.15, gt=0, lt=1)
    mask_unit: Literal["token", "word", "span", "cover"] = "token"
    precision: Literal["float32", "bfloat16"] | None = Field(None, description="bfloat16 where it is the faster one")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads; else OMP_NUM_THREADS, else one per core")
    compile: bool | None = Field(None, description="torch.compile; measured if left out, when the run is long enough")
    seed: int = Field(0, ge=0, lt=2**31)
    log_every: int | None = Field(None, ge=1, description="steps")
    validate_every: int | None = Field(None, ge=1, description="steps")
    checkpoint_every: int | None = Field(None, ge=1, description="steps")
    validation_tokens: int | None = Field(None, ge=1, description="how much is validated on while training")
    keep: int = Field(2, ge=1, description="checkpoints that stay, beside the best")
    patience: int | None = Field(None, ge=1, description="validations without a better loss before the run stops")


class PretrainPlan(PretrainSection):
    """The same with everything chosen; the budget is in steps."""

    objective: Objective
    sequence_length: int
    batch_tokens: int
    learning_rate: float
    precision: Literal["float32", "bfloat16"]
    compile: bool
    log_every: int
    validate_every: int
    checkpoint_every: int
    validation_tokens: int


Paths = str | list[str]
TaskName = Literal["classify", "pair", "similarity", "tag", "answer", "translate", "summarize", "reply", "intent"]


RowFormat = Literal["csv", "tsv", "jsonl", "json", "parquet", "conll", "conllu", "text"]


class DataSection(Section):
    """What a task is learnt from, and judged by. A column that is not named is guessed, and the guess is printed."""

    train: Paths | None = Field(
        None,
        description="a file (.csv, .tsv, .jsonl, .json of SQuAD, .parquet, .conll, .conllu; also packed), a folder "
        "with a folder for each class, two parallel texts [train.de, train.en], or archive.tar.gz::folder",
    )
    validation: Paths | None = Field(None, description="if left out, a tenth of train is held out")
    test: Paths | None = None
    text: str | None = None
    second: str | None = Field(None, description="the second text of a pair")
    label: str | list[str] | None = Field(None, description="a column; or a column of 1 and 0 for each label")
    score: str | None = None
    words: str | None = None
    tags: str | None = None
    context: str | None = None
    question: str | None = None
    answers: str | None = None
    source: str | None = None
    target: str | None = None
    intent: str | None = None
    several: bool | None = Field(None, description="an example may have several labels, or none")
    separator: str | None = Field(
        None, min_length=1, description="between labels in a cell; in what a decoder reads, before the target"
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="the names, of tables without a first line of them"
    )
    labels: list[str] | None = Field(
        None, min_length=1, description="the names, where the data has numbers for labels or tags: [O, B-PER, …]"
    )
    format: RowFormat | None = Field(
        None, description="of all files, whatever they are called; told by their endings if left out"
    )
    encoding: str = Field("utf-8", min_length=1)
    limit: int | None = Field(None, ge=1, description="train on at most so many examples, drawn by the seed")

    def columns_said(self) -> dict[str, str | list[str]]:
        """The columns that were named, by role."""
        roles = ("text", "second", "label", "score", "words", "tags", "context", "question", "answers")
        named = {role: getattr(self, role) for role in (*roles, "source", "target", "intent")}
        return {role: column for role, column in named.items() if column is not None}


class FinetuneSection(Section):
    """A task, and how it is learnt. What is left out is chosen; the run folder's recipe.yml says what."""

    model: str | ModelSection | None = Field(
        None, description="a model folder; or {family: …} from scratch; if left out, the one this recipe pre-trains"
    )
    task: TaskName
    data: DataSection
    budget: str = Field("3 epochs", description="3 epochs, 2000 steps, 50M tokens or 10m")
    tune: Literal["all", "lora", "head"] = Field(
        "all", description="every weight, adapters of low rank, the head alone"
    )
    lora_rank: int = Field(8, ge=1, le=1024)
    sequence_length: int | None = Field(None, ge=8, description="tokens, special ones included; at most")
    batch: int | None = Field(None, ge=1, description="examples in a step")
    accumulation: int = Field(1, ge=1, description="pieces a step is cut into, to save memory")
    optimizer: Literal["adamw", "muon"] | None = Field(
        None, description="muon from scratch and where it pre-trained the model, adamw otherwise"
    )
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="AdamW's peak")
    matrix_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="Muon's peak, for matrices")
    layer_decay: float = Field(1.0, gt=0, le=1, description="each layer learns so much slower than the one above it")
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)
    schedule: Literal["cosine", "linear"] = "linear"
    warmup: float = Field(0.06, ge=0, allow_inf_nan=False, description="below 1 a share of the steps, else steps")
    clip: float = Field(1.0, ge=0, allow_inf_nan=False, description="longest gradient; 0: as it is")
    dropout: float | None = Field(None, ge=0, lt=1, description="the family's own if left out")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    balanced: bool = Field(False, description="rare classes count as much as frequent ones")
    metric: str | None = Field(
        None,
        description="the figure on validation that chooses the best step: accuracy, f1, mcc, spearman … by the task; "
        "or loss. Ties go to the lower loss. Default: the task's own; with balanced, macro F1",
    )
    crf: bool = Field(False, description="tag: decide the tags of a sentence together")
    prefix: str = Field("", description="before each source, such as 'summarize: '")
    beams: int = Field(4, ge=1, le=64, description="of texts that are written")
    sample: bool = Field(False, description="texts are drawn instead of searched for")
    max_new_tokens: int | None = Field(None, ge=1, description="of an answer; by the training targets if left out")
    precision: Literal["float32", "bfloat16"] | None = Field(None, description="bfloat16 where it is the faster one")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads; else OMP_NUM_THREADS, else one per core")
    seed: int = Field(0, ge=0, lt=2**31)
    seeds: int = Field(1, ge=1, le=100, description="runs with seeds one after another; the best on validation is kept")
    log_every: int | None = Field(None, ge=1, description="steps")
    validate_every: int | None = Field(None, ge=1, description="steps")
    validation_examples: int | None = Field(
        None, ge=1, description="examples to validate on; with a budget in time as many as 5 % of it allow"
    )
    checkpoint_every: int | None = Field(None, ge=1, description="steps")
    keep: int = Field(1, ge=1, description="checkpoints that stay, beside the best")
    patience: int | None = Field(None, ge=1, description="validations without a better one before the run stops")
    baseline: bool = Field(True, description="put a classical method beside it")


class FinetunePlan(FinetuneSection):
    """The same with everything chosen; the budget is in steps."""

    sequence_length: int
    batch: int
    optimizer: Literal["adamw", "muon"]
    learning_rate: float
    precision: Literal["float32", "bfloat16"]
    log_every: int
    validate_every: int
    checkpoint_every: int


class Recipe(Section):
    name: str = Field("weft", min_length=1, description="what the run is called")
    corpus: CorpusSection | None = None
    tokenizer: TokenizerSection | None = None
    model: ModelSection | None = None
    pretrain: PretrainSection | None = None
    finetune: FinetuneSection | None = None

    def asked(self) -> dict[str, Any]:
        """What was said, as plain values. In a build a null is said on purpose: it switches something off."""
        tree = self.model_dump(exclude_none=True)
        if self.corpus is not None and self.corpus.build is not None:
            tree["corpus"]["build"] = self.corpus.build.model_dump(exclude_unset=True)
        return tree


def _exactly_one(section: SectionKind, first: str, second: str) -> SectionKind:
    given = [name for name in (first, second) if getattr(section, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give {first} or {second}{', not both' if given else ''}")
    return section


def schema() -> dict[str, Any]:
    return Recipe.model_json_schema()
