"""The `finetune:` section: a task, its labelled data, and how it is trained."""

from typing import Literal

from pydantic import Field

from weft.recipe.model import ModelSection
from weft.recipe.section import GradientClip, Section, StepPieces, TrainingPrecision, WarmUp

Paths = str | list[str]
TaskName = Literal[
    "classify", "pair", "similarity", "tag", "answer", "translate", "summarize", "reply", "intent", "embed", "extract"
]


RowFormat = Literal["csv", "tsv", "jsonl", "json", "parquet", "conll", "conllu", "text"]


class DataSection(Section):
    """Labelled data. Columns that are not named are guessed; the guess is printed."""

    train: Paths | None = Field(
        None,
        description="file (.csv, .tsv, .jsonl, SQuAD .json, .parquet, .conll, .conllu; may be compressed), folder with "
        "a subfolder per class, two parallel texts [train.de, train.en], or archive.tar.gz::folder",
    )
    validation: Paths | None = Field(None, description="validation data; default: a tenth of train is held out")
    test: Paths | None = Field(None, description="test data; used for the final report only")
    text: str | None = Field(None, description="column of the text")
    second: str | None = Field(None, description="column of the second text of a pair")
    label: str | list[str] | None = Field(
        None, description="column of the label; or a list of columns, one per label, with 1 and 0"
    )
    score: str | None = Field(None, description="column of the similarity score")
    negative: str | None = Field(
        None, description="for the task embed: column of a text that must be unlike the first text"
    )
    words: str | None = Field(None, description="column of the words to tag")
    tags: str | None = Field(None, description="column of the tags, one per word")
    context: str | None = Field(None, description="column of the text that holds the answer")
    question: str | None = Field(None, description="column of the question")
    answers: str | None = Field(None, description="column of the gold answers")
    source: str | None = Field(None, description="column of the text to translate, summarize, extract from or reply to")
    target: str | None = Field(None, description="column of the translation, summary or reply")
    messages: str | None = Field(None, description="reply: column of conversations, lists of messages")
    intent: str | None = Field(None, description="column of the intent")
    several: bool | None = Field(
        None, description="true: an example has any number of labels; default: inferred from the data"
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="text between the labels in a cell; for a decoder, text between source and target",
    )
    columns: list[str] | None = Field(None, min_length=1, description="column names of a table without a header row")
    labels: list[str] | None = Field(
        None, min_length=1, description="label names, if the data has numbers instead: [O, B-PER, …]"
    )
    format: RowFormat | None = Field(
        None, description="format of all files; default: inferred from each file's extension"
    )
    encoding: str = Field("utf-8", min_length=1, description="character encoding of the files")
    limit: int | None = Field(None, ge=1, description="maximum number of training examples, drawn at random")

    def named_columns(self) -> dict[str, str | list[str]]:
        """The columns that the recipe names, by role."""
        roles = ("text", "second", "label", "score", "words", "tags", "context", "question", "answers")
        named = {role: getattr(self, role) for role in (*roles, "source", "target", "messages", "intent", "negative")}
        return {role: column for role, column in named.items() if column is not None}


class FinetuneSection(Section):
    """A task and how it is trained. The run folder's recipe.yml shows the defaults that depend on data and machine."""

    model: str | ModelSection | None = Field(
        None,
        description="model folder, or {family: …} to train from scratch; default: the model this recipe pre-trains",
    )
    task: TaskName = Field(description="what the model learns")
    data: DataSection = Field(description="labelled data")
    budget: str = Field(
        "3 epochs", description="length of training: 3 epochs, 2000 steps, 50M tokens, or a time such as 10m"
    )
    tune: Literal["all", "lora", "head"] = Field(
        "all", description="what is trained: all weights, LoRA adapters, or the head only"
    )
    lora_rank: int = Field(8, ge=1, le=1024, description="rank of the LoRA adapters")
    sequence_length: int | None = Field(None, ge=8, description="maximum tokens per example, including special tokens")
    windows: int | None = Field(
        None,
        ge=1,
        le=64,
        description="classify: at most so many windows of sequence_length tokens are read of a text; default: as many "
        "as hold 95 % of the training texts whole, up to 1,024 tokens in all",
    )
    batch: int | None = Field(None, ge=1, description="examples per optimizer step")
    accumulation: int = Field(
        1, ge=1, description="micro-batches per optimizer step; a higher number needs less memory"
    )
    pieces: StepPieces = None
    optimizer: Literal["adamw", "muon"] | None = Field(
        None,
        description="optimizer; default: muon from scratch or if the model was pre-trained with it, otherwise adamw",
    )
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="peak learning rate of AdamW")
    matrix_rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="peak learning rate of Muon, for matrices"
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of each layer relative to the layer above it; 1: the same"
    )
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False, description="decoupled weight decay")
    schedule: Literal["cosine", "linear"] = Field("linear", description="how the learning rate falls after the warm-up")
    warmup: WarmUp = 0.06
    clip: GradientClip = 1.0
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout probability; default: that of the family")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target probability spread over all labels"
    )
    balanced: bool = Field(
        False, description="weight classes in the loss so that rare ones count as much as frequent ones"
    )
    metric: str | None = Field(
        None,
        description="validation metric that selects the best checkpoint: accuracy, f1, mcc, spearman … or loss; ties "
        "go to the lower loss; default: the main metric of the task; with balanced: macro F1",
    )
    threshold: float | None = Field(
        None,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="with several labels per example, those with a probability above this are predicted; "
        "default: a threshold for each label, chosen on the validation data",
    )
    crf: bool = Field(False, description="for the task tag: a CRF layer predicts the tags of a sentence jointly")
    prefix: str = Field("", description="text before each source, such as 'summarize: '")
    beams: int = Field(4, ge=1, le=64, description="number of beams for generated texts")
    sample: bool = Field(False, description="generate by sampling instead of beam search")
    max_new_tokens: int | None = Field(
        None,
        ge=1,
        description="maximum tokens per generated text; default: derived from the lengths of the training targets",
    )
    precision: TrainingPrecision = None
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads; default: OMP_NUM_THREADS, or one per core"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="random seed")
    seeds: int = Field(
        1, ge=1, le=100, description="number of runs with successive seeds; the best on validation is kept"
    )
    log_every: int | None = Field(None, ge=1, description="steps between two log entries")
    validate_every: int | None = Field(None, ge=1, description="steps between two validations")
    validation_examples: int | None = Field(
        None,
        ge=1,
        description="number of validation examples; default with a time budget: as many as fit into 5 % of it",
    )
    checkpoint_every: int | None = Field(None, ge=1, description="steps between two checkpoints")
    keep: int = Field(1, ge=1, description="number of newest checkpoints to keep, in addition to the best")
    patience: int | None = Field(
        None, ge=1, description="stop after this many validations without improvement; default: never"
    )
    baseline: bool = Field(True, description="train a classical baseline and report it next to the model")


class FinetunePlan(FinetuneSection):
    """The section with every default resolved. The budget is in steps."""

    sequence_length: int
    batch: int
    optimizer: Literal["adamw", "muon"]
    learning_rate: float
    precision: Literal["float32", "bfloat16"]
    log_every: int
    validate_every: int
    checkpoint_every: int
