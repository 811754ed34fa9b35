"""A model in memory: network, tokenizer, what its weft.json says, and the task it was tuned for.

Everything that uses a saved model uses this class: fine-tuning when it evaluates what it has learned, the commands, and
Python, whose `weft.Model` is this plus the verbs.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch

from weft.devices import checked_device
from weft.errors import FolderError, InputError, as_path
from weft.folders import known_facts
from weft.inference.precision import computing_precision, set_precision
from weft.interchange.folder import Description, read_model
from weft.interchange.pooling import Pooling, read_pooling
from weft.model.network import Network, count_parameters
from weft.model.positions import longest
from weft.tasks.catalog import known_task
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec, input_spec_for
from weft.tasks.task import Task
from weft.tokenizer.read import read_tokenizer
from weft.tokenizer.tokenizer import Tokenizer


class LoadedModel:
    def __init__(
        self,
        network: Network,
        description: Description,
        tokenizer: Tokenizer | None = None,
        pooling: Pooling | None = None,
        facts: dict[str, Any] | None = None,
        folder: Path | None = None,
        task: str | None = None,
    ) -> None:
        """`facts`: its weft.json. `folder`: where it was read. `task`: default: the one it was tuned for."""
        self.network, self.description, self._tokenizer = network, description, tokenizer
        self.pooling, self.facts, self.folder = pooling or Pooling(), facts or {}, folder
        self._task_name = task

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str | torch.device = "auto",
        task: str | None = None,
        precision: str | None = None,
    ) -> Self:
        """Raises FolderError if a tensor is missing, misshapen or left over."""
        folder = as_path(folder, "The model's folder")
        chosen = checked_device(device)
        network, description = read_model(folder)
        parts = read_tokenizer(folder), read_pooling(folder), known_facts(folder), folder, task
        set_precision(network.to(chosen), precision)
        return cls(network, description, *parts)

    def to(self, device: str | torch.device) -> Self:
        """Move the weights: "cpu", "cuda", "cuda:1", or "auto" for the GPU if there is one. Returns the model."""
        self.network.to(checked_device(device))
        self.__dict__.pop("task_network", None)
        return self

    def on_cpu(self) -> Self:
        """Itself, or a copy on the CPU, for work that is done there."""
        if self.device.type == "cpu":
            return self
        network = copy.deepcopy(self.network).cpu()
        set_precision(network, None)
        parts = self._tokenizer, self.pooling, self.facts, self.folder, self._task_name
        return type(self)(network, self.description, *parts)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def precision(self) -> str:
        """In which numbers it computes: fp32, bf16, int8; or those that it is stored in: int8, int4."""
        return computing_precision(self.network)

    @property
    def family(self) -> str:
        return self.network.architecture.family

    @property
    def parameters_count(self) -> int:
        return count_parameters(self.network)

    @property
    def longest(self) -> int | None:
        """The most tokens the model reads at once. None: no limit."""
        return longest(self.network.architecture.embedding.positions)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.description.labels

    @property
    def results(self) -> dict[str, Any]:
        """What training wrote about this model: scores, steps, tokens. Empty for a model that weft did not train."""
        found = self.facts.get("results")
        return found if isinstance(found, dict) else {}

    @property
    def own_tokenizer(self) -> Tokenizer | None:
        """None: the model takes token ids only."""
        return self._tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise FolderError(
                "This model has no tokenizer, so it takes token ids only. Add a tokenizer.json to its folder."
            )
        return self._tokenizer

    @cached_property
    def task(self) -> Task | None:
        """The task it was tuned for: its name, labels and settings(). None for a language model."""
        try:
            return self.required_task
        except FolderError:
            raise
        except InputError:
            return None

    @cached_property
    def required_task(self) -> Task:
        """Raises InputError if the model has no task."""
        try:
            task = known_task(self.network, self.description, self.facts.get("task"), self._task_name)
        except InputError as error:
            raise self._in_folder(error) from None
        return task.with_pooling(self.pooling)

    def for_task(self, name: str | None) -> "LoadedModel":
        """This model doing another task that its head fits; it shares the weights."""
        if name in (None, self._task_name):
            return self
        given = self.network, self.description, self._tokenizer, self.pooling, self.facts, self.folder, name
        return LoadedModel(*given)

    @cached_property
    def task_network(self) -> Network:
        """The network, with the CRF that decides its tags if it has one. The plain one stays as it was read."""
        return self.required_task.with_files(self.network, self.folder)

    @cached_property
    def input_spec(self) -> InputSpec:
        task = self.facts.get("task")
        length = task.get("sequence_length") if isinstance(task, dict) else None
        wanted = length if isinstance(length, int) and length > 0 else None
        try:
            return input_spec_for(self.network.architecture, self.description, self.tokenizer, wanted)
        except InputError as error:
            raise self._in_folder(error) from None

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        return self.answers_and_cut(examples)[0]

    def answers_and_cut(self, examples: Sequence[Example]) -> tuple[list[Any], int]:
        """The task's answers, and how many of the examples were longer than the model reads."""
        # Without gold labels: these may be ones that training never saw.
        questions = [replace(one, gold=None) for one in examples]
        return self.required_task.answers(self.task_network.eval(), questions, self.input_spec)

    def _in_folder(self, error: InputError) -> InputError:
        if self.folder is None or str(self.folder) in str(error):
            return error
        return type(error)(f"{self.folder}: {error}")
