"""The protocol of a fine-tuning task.

    row of a file -> Example -> Input(s) -> Batch -> loss                   training
                                         -> piece(s) -> answer              prediction

A task turns rows into examples, examples into what the network reads (one `Input`, or several windows of a long text),
and inputs into batches for the same training loop as pre-training. It reads predictions from the network, judges them
against the gold values, and names the classical baseline to beat.

Most read the answer from the scores of one forward pass (`ScoredTask`); others write a text. A task declares what
else depends on it: the recipe settings it uses, its metrics, its problem type in `transformers`, files it saves beside
the model. So no other room asks which task it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from weft.interchange.folder import Description
from weft.interchange.pooling import Pooling
from weft.metrics.bootstrap import Interval
from weft.metrics.judged import Judged
from weft.model.families import Family
from weft.model.network import Network
from weft.model.packed import Packed, order_by_length
from weft.objectives.objective import Batch, HeadObjective
from weft.recipe.finetune import FinetuneSection
from weft.tasks.batches import pack_inputs, tracked_groups
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.train.validation import validate


@dataclass(frozen=True)
class ExtraMetrics:
    """Metrics that need the network again, not only its answers."""

    figures: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # how they were measured, for the report


@dataclass(frozen=True)
class Task(ABC):
    name: ClassVar[str]
    head: ClassVar[str]
    counted_as: ClassVar[str] = "texts"  # what reports call the examples
    roles: ClassVar[tuple[str, ...]]  # roles of columns, inputs first
    gold_roles: ClassVar[tuple[str, ...]]  # the roles that hold gold values
    optional_roles: ClassVar[tuple[str, ...]] = ()  # used if the data has such a column
    list_roles: ClassVar[tuple[str, ...]] = ()  # roles that a recipe may give as a list of columns
    form_roles: ClassVar[tuple[str, ...]] = ()  # roles of columns that tell another form of the task (`form_with`)
    group_column: ClassVar[str] = ""  # examples with equal values there stay in one split

    writes: ClassVar[bool] = False  # generates a text
    several: ClassVar[bool] = False  # any number of labels per example
    has_one_label: ClassVar[bool] = False  # per example, out of `labels`; an answer is a share for each of them
    recipe_settings: ClassVar[tuple[str, ...]] = ()  # of finetune, or data.… of finetune.data, that only some tasks use
    exclusive_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # the first makes the others useless
    metrics: ClassVar[tuple[str, ...]] = ()  # that may select the best step
    metric_titles: ClassVar[Mapping[str, str]] = {}  # for people; a metric without one is called by its name
    metric_packages: ClassVar[tuple[str, ...]] = ()  # optional packages that the metrics need
    baseline_packages: ClassVar[tuple[str, ...]] = ()  # and the baseline
    problem_type: ClassVar[str | None] = None  # in the config of transformers
    side_files: ClassVar[tuple[str, ...]] = ()  # names of files that `files` may return
    is_implied: ClassVar[bool] = True  # a fitting head is enough; otherwise the task must be named
    default_batch: ClassVar[int] = 32  # examples
    timed_examples: ClassVar[int] = 50  # whose latency is measured
    contained_texts_leak: ClassVar[bool] = True  # a text inside another one gives away its label

    labels: tuple[str, ...] = ()

    # Construction: from a recipe, from a saved model, from the head of a model that weft did not tune.

    @classmethod
    def from_section(cls, section: FinetuneSection, label: Any) -> "Task":
        """The task of a recipe. `label`: the first label in the data; a list means several labels per example."""
        return cls()

    @classmethod
    def form_with(cls, role: str) -> "type[Task]":
        """The form of the task for data with a column of this role, one of `form_roles`."""
        return cls

    @classmethod
    def check_section(cls, section: FinetuneSection) -> None:
        """Raises RecipeError if settings of this task contradict each other."""
        return

    @classmethod
    def metrics_of_recipe(cls) -> tuple[str, ...]:
        """Names that `finetune.metric` may have, before the data is read."""
        return cls.metrics

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], labels: tuple[str, ...]) -> "Task":
        """The task as `facts` saved it. Raises TypeError if the facts have unknown settings."""
        apart = ("name", "several", "form", "sequence_length", "metric")
        return cls(labels=labels).with_settings({key: facts[key] for key in facts if key not in apart})

    def facts(self) -> dict[str, Any]:
        """What weft.json keeps of the task. The labels are in the model's config."""
        return {"name": self.name, "several": self.several, **self.settings()}

    def settings(self) -> dict[str, Any]:
        return {}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, **settings)

    @classmethod
    @abstractmethod
    def from_head(cls, network: Network, description: Description) -> "Task | None":
        """The task as far as a model's head and labels tell it. None if the head does not fit."""

    # Data.

    @abstractmethod
    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        """From the values of a row, by role. Raises Unusable."""

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        """With the labels of the training data, before any of it is held out."""
        return self

    def fitted(self, train: Sequence[Example]) -> Self:
        """With what else is learned from the training examples without the network, such as a tokenization."""
        return self

    def normalized(self, examples: Sequence[Example]) -> list[Example]:
        """With gold values in the form that is learned, repaired where possible."""
        return list(examples)

    def check(self, example: Example) -> None:  # noqa: B027 (most gold values are always valid)
        """Raises UnseenLabel or Unusable if this example cannot be learned from."""

    def classes(self, example: Example) -> Sequence[str]:
        """The gold classes of the example, if the task has classes."""
        return ()

    def compared_texts(self, example: Example) -> tuple[str, ...]:
        """The texts that held-out examples must not share with training examples."""
        return (self.in_words(example),)

    # The network.

    @property
    def outputs(self) -> int:
        """Width of the head's output."""
        return len(self.labels)

    def head_in(self, family: type[Family] | Family) -> str:
        """The kind of head that this task puts on a model of the family. Raises RecipeError if there is none."""
        return self.head

    def complete_spec(self, spec: InputSpec) -> InputSpec:
        """With what the task needs of the tokenizer."""
        return spec

    def for_model(self, head: str, spec: InputSpec, train: Sequence[Example], section: FinetuneSection) -> Self:
        """With what depends on the model: its head, and the longest text to write."""
        return self

    def with_pooling(self, pooling: Pooling) -> Self:
        """With the pooling of the model's folder, for tasks that compare text vectors."""
        return self

    def check_model(self, spec: InputSpec, example: Example) -> None:  # noqa: B027 (most fit any model with the head)
        """Raises InputError if the model cannot do the task. `example`: any of the training examples."""

    def prepare(self, network: Network, train: Sequence[Example]) -> None:  # noqa: B027 (most need nothing)
        """Change a fresh network before training: initialize a bias, add a CRF."""

    @abstractmethod
    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]: ...

    def most_tokens(self, spec: InputSpec) -> int:
        """That are read of a text."""
        return spec.most_tokens

    @abstractmethod
    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch: ...

    @abstractmethod
    def answers(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> tuple[list[Any], int]:
        """One answer per example, and how many of the examples do not fit into one input."""

    def validation(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> dict[str, float]:
        """`validation_loss`, and `validation_…` of each metric that may select the best step."""
        batches = (
            batch_of(self, [inputs[i] for i in part]) for part in tracked_groups(inputs, "Validating", self.counted_as)
        )
        return {"validation_loss": validate(network, batches)["validation_loss"]}

    def calibrate(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> dict[str, float]:
        """Make the network's probabilities agree with its accuracy on these examples, which it was not trained on.
        Returns what was done; nothing by default.
        """
        return {}

    def with_thresholds_from(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> Self:
        """With the thresholds that suit the calibrated network best on these examples, if the task has thresholds."""
        return self

    # Saving.

    def config(self) -> dict[str, Any]:
        """Keys for the model's config.json, as `transformers` reads them."""
        return {} if self.problem_type is None else {"problem_type": self.problem_type}

    def generation_config(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """The model's generation_config.json; `before`: that of the model that was tuned."""
        return dict(before)

    def files(self, network: Network) -> dict[str, bytes]:
        """Files beside the model, by name, for weights that no format of a family has."""
        return {}

    def with_files(self, network: Network, folder: Path | None) -> Network:
        """The network with the weights from the files in a model folder. The given network does not change."""
        return network

    # Judging.

    @property
    def known_metrics(self) -> tuple[str, ...]:
        """The metrics that may select the best step, once the labels are known."""
        return self.metrics

    @property
    def selection_metric(self) -> str | None:
        """The metric that selects the best step. None: the loss."""
        return None

    def main_metric(self, figures: Mapping[str, float]) -> str:
        """The metric that reports put first."""
        return next(iter(figures))

    def check_metric(self) -> None:  # noqa: B027 (tasks that write have no metric to name)
        """Raises RecipeError if the recipe's metric does not exist for this task with these labels."""

    @abstractmethod
    def judge(self, examples: Sequence[Example], answers: Sequence[Any]) -> Judged: ...

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[Any], spec: InputSpec
    ) -> ExtraMetrics:
        """What `judge` cannot know from the answers alone."""
        return ExtraMetrics()

    def score(self, network: Network, examples: Sequence[Example], answers: Sequence[Any], spec: InputSpec) -> float:
        """The main metric alone."""
        figures = self.judge(examples, answers).figures | self.measure(network, examples, answers, spec).figures
        return figures[self.main_metric(figures)]

    @abstractmethod
    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[Any]]:
        """The name of the classical baseline, and its answers."""

    def measure_baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> ExtraMetrics:
        """The metrics of `measure`, for the baseline."""
        return ExtraMetrics()

    # Output.

    @abstractmethod
    def shown(self, example: Example, answer: Any, *, details: bool = False) -> dict[str, Any]:
        """The answer as JSON."""

    @abstractmethod
    def in_words(self, example: Example) -> str:
        """The input as one text."""

    @abstractmethod
    def gold_in_words(self, example: Example) -> str: ...

    @abstractmethod
    def answer_in_words(self, example: Example, answer: Any) -> str: ...

    def decision(self, example: Example, answer: Any) -> str:
        """The answer without how sure the model is. Two models agree where these are equal."""
        return self.answer_in_words(example, answer)


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
