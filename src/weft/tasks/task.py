"""What fine-tuning learns, and one protocol for all of it.

    row of a file -> Example -> Input(s) -> Batch -> loss            while learning
                                         -> piece(s) -> answer       afterwards

An example is what is given and, where it is known, what is right. A task turns it into what the network reads (one
`Input`, or several windows of a long text), says what the network is asked (a `Batch`, as in pre-training: the loop is
the same) and what it answers. Most read the answer off the network's numbers, in pieces that are joined (`ScoredTask`);
some write a text. A task also judges answers against what is right, says both in words, and names the classical method
that it must be better than.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.evaluate.bootstrap import Interval
from weft.evaluate.judged import Judged
from weft.generate.start_end_tokens import StartEndTokens
from weft.model.network import Network
from weft.model.packed import Packed, group_by_tokens, order_by_length, pack
from weft.objectives.objective import Batch, HeadObjective
from weft.tokenizer.tokenizer import Tokenizer

LOSS = "loss"
Embed = Callable[[Sequence[str]], np.ndarray]  # a vector for each text
ANSWERED_TOKENS = 4096  # that are answered at once; more does not fit into the caches of a CPU


class Unusable(Exception):
    """This row cannot be learnt from; the message is the end of a sentence that begins with its place."""


class UnseenLabel(Unusable):
    """It can be judged all the same: whatever the model answers is wrong."""


@dataclass(frozen=True)
class Example:
    given: Any
    gold: Any  # none, if it is to be found
    place: str = ""  # where it was read
    text: str = ""  # that the words given were cut from, if they were
    group: str = ""  # what it shares with others, if the data says so: the article that a question is about
    # What was wrong with it and was put right: ends of sentences that begin with its place.
    mended: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputSpec:
    """How the model reads: its tokenizer, and its limits."""

    tokenizer: Tokenizer
    most_tokens: int  # in an input
    segments: int = 0  # kinds of segments the model tells apart
    looks_ahead: bool = True  # a decoder's token sees only those before it
    has_source: bool = False  # an encoder reads, a decoder writes
    ends: StartEndTokens = field(default_factory=StartEndTokens)  # of a model that writes


@dataclass(frozen=True)
class Input:
    """What the network reads of an example, or of a window of it."""

    example: int  # whose it is, in the list that was given
    ids: np.ndarray
    segments: np.ndarray | None = None
    targets: Any = None  # what the task must know to batch_of and to read the answer
    was_cut: bool = False  # the text was longer


@dataclass(frozen=True)
class ExtraMetrics:
    """Figures that need the network once more than its answers."""

    figures: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # how they came about, for the report


@dataclass(frozen=True)
class Task(ABC):
    name: ClassVar[str]
    head: ClassVar[str]  # that sits on the backbone
    counted_as: ClassVar[str] = "texts"  # what examples are called in reports
    roles: ClassVar[tuple[str, ...]]  # of columns: what is given first
    gold_roles: ClassVar[tuple[str, ...]]  # those of them that hold what is right
    optional: ClassVar[tuple[str, ...]] = ()  # roles that a column may play, if it is there
    judged_with: ClassVar[tuple[str, ...]] = ()  # optional packages: for the metrics,
    beside_with: ClassVar[tuple[str, ...]] = ()  # and for the classical method beside it
    compares_inside: ClassVar[bool] = True  # a text that stands inside another gives it away
    uses_vectors: ClassVar[bool] = False  # one for each text: what an untuned encoder tells about the task
    grouped_by: ClassVar[str] = ""  # the column, if there is one, of what several examples are about

    labels: tuple[str, ...] = ()

    @abstractmethod
    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        """Of the values of a row, by role. Raises `Unusable`."""

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        """With what is to be known from the training data before anything is learnt: the labels."""
        return self

    def fitted(self, train: Sequence[Example]) -> Self:
        """With what is learnt from the training examples beside the network, now that none of them is held out."""
        return self

    def normalized(self, examples: Sequence[Example]) -> list[Example]:
        """With what is right in the one form that is learnt, and mended where that can be."""
        return list(examples)

    def check(self, example: Example) -> None:  # noqa: B027 (most can always be judged)
        """Raises `Unusable` if this cannot be judged: its label was never learnt."""

    def classes(self, example: Example) -> Sequence[str]:
        """Those that it is an example of, where there are any to tell apart."""
        return ()

    @property
    def outputs(self) -> int:
        """Of the head."""
        return len(self.labels)

    @abstractmethod
    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]: ...

    @abstractmethod
    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch: ...

    @abstractmethod
    def answers(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> tuple[list[Any], int]:
        """One to each, and how many of the examples were longer than the model reads."""

    def prepare(self, network: Network, train: Sequence[Example]) -> None:  # noqa: B027 (most need none)
        """A last touch to fresh weights before training: a head that begins in the middle of what is asked."""

    @abstractmethod
    def judge(self, examples: Sequence[Example], answers: Sequence[Any]) -> Judged: ...

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[Any], spec: InputSpec
    ) -> ExtraMetrics:
        """What `judge` cannot know from the answers alone."""
        return ExtraMetrics()

    @abstractmethod
    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[Any]]:
        """The name of the classical method, and its answers."""

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[Any], int]:
        """What a model that was not tuned answers by its vectors: the name of the way, the answers, and how many
        examples were learnt from.
        """
        raise NotImplementedError(f"{self.name} has no use for vectors")

    def measure_baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> ExtraMetrics:
        """The figures of `measure` by classical methods, where there are any."""
        return ExtraMetrics()

    @abstractmethod
    def shown(self, example: Example, answer: Any, *, details: bool = False) -> dict[str, Any]:
        """The answer as JSON."""

    @abstractmethod
    def in_words(self, example: Example) -> str:
        """What was given."""

    def compared(self, example: Example) -> tuple[str, ...]:
        """The texts that what is held out must not share with what is learnt from."""
        return (self.in_words(example),)

    @abstractmethod
    def gold_in_words(self, example: Example) -> str: ...

    @abstractmethod
    def answer_in_words(self, example: Example, answer: Any) -> str: ...

    def settings(self) -> dict[str, Any]:
        """What is to be kept beside the labels, so that a saved model knows its task."""
        return {}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, **settings)


@dataclass(frozen=True)
class ScoredTask(Task):
    """What is answered with the numbers of one pass."""

    score: ClassVar[str]  # the figure that tells the best model if nobody names one, the higher the better
    metrics: ClassVar[tuple[str, ...]]  # those that can be named

    metric: str = ""  # that was named; "loss" is one, too

    @property
    def deciding(self) -> str:
        """The figure that stands first, and tells the best model unless the loss does."""
        return self.metric if self.metric not in ("", LOSS) else self.score

    @property
    def known_metrics(self) -> tuple[str, ...]:
        """Once the labels are known."""
        return self.metrics

    @abstractmethod
    def figures(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float]:
        """The metrics, without what takes long."""

    @abstractmethod
    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        """What the network says about each input."""

    def join(self, example: Example, pieces: Sequence[tuple[Input, Any]]) -> Any:
        """The answer, of what was said about its windows."""
        return pieces[0][1]

    def answers(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> tuple[list[Any], int]:
        inputs = self.inputs(examples, spec)
        return read_off(self, network, examples, inputs), count_cut(inputs)


@dataclass(frozen=True)
class TaskObjective(HeadObjective):
    """A task's inputs as an objective of the training loop."""

    task: Task
    inputs: Sequence[Input]

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        picked = [self.inputs[sample] for sample in samples]
        return batch_of(self.task, [picked[i] for i in order_by_length([one.ids for one in picked])])


def batch_of(task: Task, inputs: Sequence[Input]) -> Batch:
    return task.batch(inputs, pack_inputs(inputs))


def pack_inputs(inputs: Sequence[Input]) -> Packed:
    segments = [one.segments for one in inputs]
    known = [row for row in segments if row is not None]
    # Where no special token stands around it, a text of control characters may leave nothing to read.
    return pack([one.ids if len(one.ids) else [0] for one in inputs], known if known else None)


def count_cut(inputs: Sequence[Input]) -> int:
    """Examples that do not fit into one input."""
    return len({one.example for one in inputs if one.was_cut})


def groups(inputs: Sequence[Input], most_tokens: int = ANSWERED_TOKENS) -> Iterator[list[int]]:
    """Inputs that go through the network together: of like lengths."""
    order = order_by_length([one.ids for one in inputs])
    for part in group_by_tokens([len(inputs[i].ids) for i in order], most_tokens):
        yield [order[i] for i in part]


def read_off(
    task: ScoredTask,
    network: Network,
    examples: Sequence[Example],
    inputs: Sequence[Input],
    on_batch: Callable[[Batch, Tensor], None] | None = None,
) -> list[Any]:
    """The network's answer to each example. `on_batch` sees the hidden states on their way, to measure a loss."""
    device = next(network.parameters()).device
    said: list[Any] = [None] * len(inputs)
    with torch.inference_mode():
        for part in groups(inputs):
            picked = [inputs[i] for i in part]
            packed = pack_inputs(picked).to(device)
            hidden = network(packed)
            if on_batch is not None:
                on_batch(task.batch(picked, packed).to(device), hidden)
            for index, piece in zip(part, task.pieces(network, hidden, packed, picked), strict=True):
                said[index] = piece
    of_each: list[list[tuple[Input, Any]]] = [[] for _ in examples]
    for one, piece in zip(inputs, said, strict=True):
        of_each[one.example].append((one, piece))
    return [task.join(example, pieces) for example, pieces in zip(examples, of_each, strict=True)]
