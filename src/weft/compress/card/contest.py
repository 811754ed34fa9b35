"""What models are compared at: a task with labelled data, text that language models predict, or vectors of texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from weft.compress.card.timing import TimedWork
from weft.metrics.judged import Judged
from weft.tasks.loaded import LoadedModel

SHOWN_CHANGES = 20


@dataclass(frozen=True)
class Performance:
    """One model on all texts."""

    tokens: int  # that the model reads of them
    flops: float  # of reading them once
    seconds: float  # about, of a first pass
    judged: Judged | None = None  # None: its quality cannot be compared
    answers: Sequence[Any] = ()
    cut: int = 0  # texts that are longer than the model reads


@dataclass(frozen=True)
class Changed:
    """A text that two models answer differently."""

    place: str
    given: str
    gold: str
    before: str
    after: str
    change: str  # right → wrong, worse …


@dataclass(frozen=True)
class Agreement:
    """How far the answers of two models are the same."""

    equal: float | None = None  # share of the texts
    correlation: float | None = None  # of answers that are numbers
    counts: dict[str, int] = field(default_factory=dict)  # of each kind of change
    shown: tuple[Changed, ...] = ()


class Contest(ABC):
    kind: ClassVar[str]
    # Which speed counts first: that of many texts together, or of one alone.
    headline: Literal["together", "alone"] = "together"
    alone_title: str = "one text"

    where: str  # the data
    unit: str  # what the texts are called
    count: int  # texts
    metric: str  # the one that the verdict names
    task: str = ""
    notes: list[str]

    @abstractmethod
    def perform(self, model: LoadedModel) -> Performance:
        """The model on all texts."""

    @abstractmethod
    def work(self, model: LoadedModel) -> TimedWork: ...

    def agreement(self, before: Performance, after: Performance) -> Agreement | None:
        return None


def model_name(model: LoadedModel) -> str:
    return "the model" if model.folder is None else str(model.folder)
