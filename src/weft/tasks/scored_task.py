"""Tasks whose answer is read from the scores of one forward pass, in pieces if the text has several windows."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.errors import RecipeError, suggest
from weft.interchange.folder import Description
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.objective import Batch
from weft.recipe.finetune import FinetuneSection
from weft.tasks.batches import count_cut, groups, pack_inputs, tracked_groups
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.task import Task

LOSS = "loss"
Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> (texts, width)


@dataclass(frozen=True)
class ScoredTask(Task):
    """A task whose answer is read from the scores of one forward pass."""

    reads_whole_texts: ClassVar[bool] = True  # in several inputs, if they are long; otherwise their ends may be cut
    default_metric: ClassVar[str]  # higher is better
    balanced_metric: ClassVar[str] = ""  # the default with `balanced: true`
    metric_aliases: ClassVar[Mapping[str, str]] = {}

    metric: str = ""  # as named by the recipe, "loss" included; "": the default

    @classmethod
    def metric_of(cls, section: FinetuneSection) -> str:
        metric = section.metric or (cls.balanced_metric if section.balanced else "")
        return cls.metric_aliases.get(metric, metric)

    @classmethod
    def from_section(cls, section: FinetuneSection, label: Any) -> Task:
        return cls(metric=cls.metric_of(section))

    @classmethod
    def metrics_of_recipe(cls) -> tuple[str, ...]:
        return (*cls.metrics, *cls.metric_aliases)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], labels: tuple[str, ...]) -> Task:
        task = super().from_facts(facts, labels)
        metric = facts.get("metric")
        return replace(task, metric=metric) if metric in task.known_metrics else task  # type: ignore[call-arg]

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({"metric": self.metric} if self.metric else {})

    @property
    def selection_metric(self) -> str | None:
        return None if self.metric == LOSS else self.metric or self.default_metric

    def main_metric(self, figures: Mapping[str, float]) -> str:
        return self.selection_metric or self.default_metric

    def check_metric(self) -> None:
        if self.metric not in ("", LOSS, *self.known_metrics):
            raise metric_error(self.metric, self.name, self.known_metrics)

    @abstractmethod
    def figures(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float]:
        """The metrics that are cheap enough for every validation."""

    @abstractmethod
    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        """The prediction for each input."""

    def join(self, example: Example, pieces: Sequence[tuple[Input, Any]]) -> Any:
        """One answer from the predictions for the windows of an example."""
        return pieces[0][1]

    def answers(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> tuple[list[Any], int]:
        inputs = self.inputs(examples, spec)
        return answer_inputs(self, network, examples, inputs), count_cut(inputs)

    def score(self, network: Network, examples: Sequence[Example], answers: Sequence[Any], spec: InputSpec) -> float:
        return self.figures(examples, answers)[self.main_metric({})]

    def validation(self, network: Network, examples: Sequence[Example], inputs: Sequence[Input]) -> dict[str, float]:
        was_training = network.training
        network.eval()
        sums, counts = Counter[str](), Counter[str]()

        def add_losses(batch: Batch, hidden: Tensor) -> None:
            counts.update(batch.counts)
            for kind, answers in batch.answers.items():
                sums[kind] += float(answers.loss(network, hidden, batch.packed, 0.0))  # type: ignore[assignment]

        parts = tracked_groups(inputs, "Validating", self.counted_as)
        found = answer_inputs(self, network, examples, inputs, parts, on_batch=add_losses)
        network.train(was_training)
        loss = sum(sums[kind] / max(counts[kind], 1) for kind in counts)
        figures = {f"validation_{name}": value for name, value in self.figures(examples, found).items()}
        return {"validation_loss": loss, **figures}


@dataclass(frozen=True)
class VectorTask(ScoredTask):
    """A task that the text vectors of an untuned encoder say something about."""

    reads_whole_texts: ClassVar[bool] = False

    @abstractmethod
    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[Any], int]:
        """The name of the method, its answers, and how many training examples it used."""


def answer_inputs(
    task: ScoredTask,
    network: Network,
    examples: Sequence[Example],
    inputs: Sequence[Input],
    parts: Iterable[list[int]] | None = None,
    *,
    read: Callable[..., Sequence[Any]] | None = None,
    on_batch: Callable[[Batch, Tensor], None] | None = None,
) -> list[Any]:
    """The network's answer to each example.

    `parts`: indices of inputs that go through the network together. Default: `groups`. `read`: what is read from the
    hidden states. Default: `task.pieces`. `on_batch` receives each batch and its hidden states, to sum a loss.
    """
    read = read or task.pieces
    device = next(network.parameters()).device
    predicted: list[Any] = [None] * len(inputs)
    with torch.inference_mode():
        for part in groups(inputs) if parts is None else parts:
            picked = [inputs[i] for i in part]
            packed = pack_inputs(picked)
            batch = (Batch(packed) if on_batch is None else task.batch(picked, packed)).to(device)
            hidden = network(batch.packed)
            if on_batch is not None:
                on_batch(batch, hidden)
            for index, piece in zip(part, read(network, hidden, batch.packed, picked), strict=True):
                predicted[index] = piece
    of_each: list[list[tuple[Input, Any]]] = [[] for _ in examples]
    for one, piece in zip(inputs, predicted, strict=True):
        of_each[one.example].append((one, piece))
    return [task.join(example, pieces) for example, pieces in zip(examples, of_each, strict=True)]


def metric_error(metric: str, task: str, known: Sequence[str]) -> RecipeError:
    known = (*known, LOSS)
    return RecipeError(
        f"finetune.metric: {metric} is not a metric that can select the best step of {task} on this data"
        f"{suggest(metric, known)}. Metrics: {', '.join(known)}."
    )


def head_labels(network: Network, description: Description, head: str) -> tuple[str, ...] | None:
    """The labels of a model's head of this kind. None if the model has no such head.

    A config of `transformers` leaves out the names of two labels; there they are LABEL_0 and LABEL_1.
    """
    if head not in network.heads or network.architecture.is_encoder_decoder:
        return None
    return description.labels or tuple(f"LABEL_{number}" for number in range(network.head(head).spec.outputs))
