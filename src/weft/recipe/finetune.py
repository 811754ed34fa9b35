"""`finetune:` the task, its labelled data, and how it is learnt."""

from typing import Literal

from pydantic import Field

from weft.recipe.model import ModelSection
from weft.recipe.section import Section

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

    def named_columns(self) -> dict[str, str | list[str]]:
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
