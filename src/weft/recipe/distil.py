"""The `distil:` section: a teacher, the shape of its student, and how the student learns."""

from typing import Literal

from pydantic import Field

from weft.recipe.finetune import DataSection
from weft.recipe.section import GradientClip, Section, TrainingPrecision, WarmUp

DistilMethod = Literal["kl", "distilbert", "minilm", "minilm+kl", "tinybert"]


class StudentSection(Section):
    """The student's shape. What is left out is as in the teacher."""

    family: str | None = Field(None, description="another family with the same tokenizer; default: the teacher's")
    layers: int | None = Field(None, ge=1, description="number of Transformer blocks")
    decoder_layers: int | None = Field(
        None, ge=1, description="of an encoder–decoder's decoder; default: as layers, if those are given"
    )
    width: int | None = Field(None, ge=1, description="hidden size")
    heads: int | None = Field(None, ge=1, description="number of attention heads; default: as wide as the teacher's")
    inner: int | None = Field(
        None, ge=1, description="width of the feedforward layers; default: in proportion to the hidden size"
    )
    take: Literal["uniform", "lower", "upper"] | list[int] = Field(
        "uniform", description="layers of the teacher that the student starts from; or their numbers, from 0 on"
    )
    fresh: bool = Field(False, description="start from random weights instead of the teacher's")


class AugmentSection(Section):
    """More training texts by replacing words (TinyBERT, Jiao et al. 2020). For classify, pair, similarity and tag."""

    model: str | None = Field(
        None,
        min_length=1,
        description="folder of a masked language model; default: the one that the teacher was tuned from, or, if there "
        "is none, words whose embeddings in the teacher are alike",
    )
    copies: int = Field(20, ge=1, le=1000, description="new texts per training example")
    probability: float = Field(0.4, gt=0, le=1, description="probability that a word is replaced")
    candidates: int = Field(15, ge=1, le=1000, description="most probable words to choose from")


class DistilSection(Section):
    """A small model learns from a large one. With `data` it learns the teacher's task; otherwise the recipe's corpus.
    The run folder's recipe.yml shows the defaults that depend on data and machine.
    """

    teacher: str | None = Field(
        None, min_length=1, description="folder of the teacher; default: the model that this recipe trains before"
    )
    student: str | StudentSection = Field(
        StudentSection(), description="shape of the student; or the folder of a model that goes on learning"
    )
    data: DataSection | None = Field(None, description="labelled data of the teacher's task")
    method: DistilMethod | None = Field(
        None,
        description="losses: tinybert (tasks, two stages), kl (the predictions alone), distilbert, minilm, minilm+kl "
        "(encoders on plain text); default: tinybert for a task if the student differs from the teacher in more than "
        "its layers, minilm+kl for an encoder on plain text, otherwise kl",
    )
    budget: str = Field("10m", description="length of training: a time such as 10m, 2000 steps, 50M tokens or 3 epochs")
    intermediate: float = Field(
        0.5, ge=0, lt=1, description="tinybert: share of the budget for the first stage, which matches the layers"
    )
    temperature: float | None = Field(
        None, gt=0, le=100, description="divides the logits before the softmax; default: 1, distilbert: 2"
    )
    label_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the loss of the labels beside that of the teacher's predictions; "
        "default: 0.5; plain text, and tasks with new texts: 0",
    )
    teacher_layer: int | None = Field(
        None, ge=0, description="minilm: layer whose relations are learned, from 0 on; default: the last"
    )
    sequence_level: bool = Field(
        True, description="tasks that write: learn the texts that the teacher writes (beam search), not the targets"
    )
    augment: AugmentSection | Literal[False] | None = Field(
        None,
        description="more training texts by replacing words; default: if there are fewer than 10,000 examples",
    )
    cache: str | None = Field(
        None,
        min_length=1,
        description="folder for the teacher's outputs, which any number of students share; default: none, the teacher "
        "computes them in every step",
    )
    cache_limit: float = Field(
        4.0, gt=0, description="largest size of these outputs, in GB; if they are larger, the teacher computes them"
    )
    yardsticks: bool = Field(
        True,
        description="also train the same student without the teacher for as many minutes, and evaluate the teacher, "
        "the untrained student and a classical baseline",
    )
    sequence_length: int | None = Field(None, ge=4, description="maximum tokens per example or sequence")
    batch: int | None = Field(None, ge=1, description="examples or sequences per optimizer step")
    accumulation: int = Field(
        1, ge=1, description="micro-batches per optimizer step; a higher number needs less memory"
    )
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="peak learning rate of AdamW")
    intermediate_rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="tinybert: peak learning rate of the first stage"
    )
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False, description="decoupled weight decay")
    warmup: WarmUp = 0.06
    clip: GradientClip = 1.0
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="dropout probability of the student; default: that of its family if a student of fewer layers sees "
        "the texts of a task more than three times, otherwise 0",
    )
    mask_share: float = Field(0.15, gt=0, lt=1, description="plain text: share of the tokens that are masked")
    precision: TrainingPrecision = None
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads; default: OMP_NUM_THREADS, or one per core"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="random seed")
    log_every: int | None = Field(None, ge=1, description="steps between two log entries")
    validate_every: int | None = Field(None, ge=1, description="steps between two validations")
    validation_examples: int | None = Field(None, ge=1, description="tasks: number of validation examples")
    checkpoint_every: int | None = Field(None, ge=1, description="steps between two checkpoints")
    keep: int = Field(1, ge=1, description="number of newest checkpoints to keep, in addition to the best")
    patience: int | None = Field(
        None, ge=1, description="stop after this many validations without improvement; default: never"
    )
