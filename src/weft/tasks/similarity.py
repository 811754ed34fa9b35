"""Two texts, a number: how alike are they? TaskObjective as a regression, (z − y)²."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.interchange.folder import Description
from weft.metrics.baselines.frozen import row_cosines
from weft.metrics.baselines.pairs import PairRegressor
from weft.metrics.bootstrap import example_intervals
from weft.metrics.judged import Judged
from weft.metrics.values import value_figures
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import RegressionAnswers
from weft.objectives.objective import Batch
from weft.tasks.encode import encode_pairs
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import read_number
from weft.tasks.pair import given_pair, pair_in_words
from weft.tasks.scored_task import Embed, VectorTask, head_labels
from weft.tasks.task import Task


@dataclass(frozen=True)
class Similarity(VectorTask):
    name: ClassVar[str] = "similarity"
    counted_as: ClassVar[str] = "pairs"
    head: ClassVar[str] = "sequence"
    roles: ClassVar[tuple[str, ...]] = ("text", "second", "score")
    gold_roles: ClassVar[tuple[str, ...]] = ("score",)
    problem_type: ClassVar[str | None] = "regression"
    baseline_packages: ClassVar[tuple[str, ...]] = ("sklearn",)
    metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")
    default_metric: ClassVar[str] = "spearman"
    metric_titles: ClassVar[Mapping[str, str]] = {
        "spearman": "Spearman", "pearson": "Pearson", "rmse": "RMSE", "mae": "mean absolute error",
    }  # fmt: skip
    contained_texts_leak: ClassVar[bool] = False

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        labels = head_labels(network, description, cls.head)
        return cls(labels) if labels is not None and network.head(cls.head).spec.outputs == 1 else None

    @property
    def outputs(self) -> int:
        return 1

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        return Example(given_pair(values), read_number(values.get("score"), "score") if with_gold else None)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        if len({example.gold for example in train}) < 2:
            raise InputError("All training examples have the same score. Is it the right column (finetune.data.score)?")
        return replace(self, labels=("score",))

    def prepare(self, network: Network, train: Sequence[Example]) -> None:
        out = network.head(self.head).out
        if out.bias is not None and not out.bias.any():  # a bias from an earlier tuning stays
            with torch.no_grad():
                out.bias.fill_(float(np.mean([example.gold for example in train])))

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        encoded = encode_pairs([example.given for example in examples], spec)
        return [replace(one, targets=examples[one.example].gold) for one in encoded]

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        targets = RegressionAnswers(self.head, torch.tensor([one.targets for one in inputs], dtype=torch.float32))
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[float]:
        return network.head(self.head)(hidden, packed).float()[:, 0].tolist()

    def figures(self, examples: Sequence[Example], answers: Sequence[float]) -> dict[str, float]:
        return value_figures([example.gold for example in examples], answers)

    def judge(self, examples: Sequence[Example], answers: Sequence[float]) -> Judged:
        gold, found = np.asarray([example.gold for example in examples]), np.asarray(answers)
        intervals = example_intervals(len(gold), lambda rows: value_figures(gold[rows], found[rows]))
        off = np.abs(gold - found)
        spread = max(float(gold.max() - gold.min()), 1e-9)
        return Judged(self.figures(examples, answers), intervals, np.clip(1 - off / spread, 0, 1), off)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[float]]:
        first, second = (list(side) for side in zip(*(one.given for one in train), strict=True))
        model = PairRegressor.fit(first, second, [one.gold for one in train])
        sides = (list(side) for side in zip(*(one.given for one in examples), strict=True))
        return "TF-IDF of the pair + ridge regression", model.predict(*sides).tolist()

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[float], int]:
        first, second = (embed([one.given[side] for one in examples]) for side in (0, 1))
        return "cosine of untuned vectors", row_cosines(first, second).tolist(), 0

    def shown(self, example: Example, answer: float, *, details: bool = False) -> dict[str, Any]:
        return {"score": round(float(answer), 6)}

    def in_words(self, example: Example) -> str:
        return pair_in_words(example)

    def compared_texts(self, example: Example) -> tuple[str, ...]:
        return example.given

    def gold_in_words(self, example: Example) -> str:
        return f"{example.gold:g}"

    def answer_in_words(self, example: Example, answer: float) -> str:
        return f"{answer:.2f}"
