"""Sentence embeddings: texts that belong together get vectors that point in one direction.

    cos(u, v) = u · v / (‖u‖ ‖v‖),   u, v: the pooled hidden states of the two texts

Training pairs either have a score, or they are simply pairs that belong together (a question and its answer, a text and
its summary); then all other second texts of the batch are what the first is told apart from. A third column may hold a
text that must be unlike the first. What is saved opens in sentence-transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.interchange.folder import Description
from weft.interchange.pooling import Pooling
from weft.metrics.baselines.pairs import pair_vectors
from weft.metrics.bootstrap import example_intervals, mean_interval
from weft.metrics.judged import Judged
from weft.metrics.retrieval import ranks_of_own, retrieval_credits, row_products, stacked, unit_vectors
from weft.metrics.values import order_figures, rank_of_each
from weft.model.families import Family
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.embeddings import ContrastiveAnswers, RankedAnswers, unit_rows
from weft.objectives.objective import Batch
from weft.recipe.finetune import FinetuneSection
from weft.tasks.encode import encode_texts
from weft.tasks.example import Example, Input, Unusable
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import read_number, read_text
from weft.tasks.pair import given_pair
from weft.tasks.scored_task import LOSS, Embed, VectorTask
from weft.tasks.task import Task

PairVectors = tuple[Any, Any]  # of the first and the second text: rows, dense or sparse, of length 1


@dataclass(frozen=True)
class EmbedTask(VectorTask):
    name: ClassVar[str] = "embed"
    counted_as: ClassVar[str] = "pairs"
    head: ClassVar[str] = "none"
    roles: ClassVar[tuple[str, ...]] = ("text", "second")
    gold_roles: ClassVar[tuple[str, ...]] = ()
    optional_roles: ClassVar[tuple[str, ...]] = ("score", "negative")
    recipe_settings: ClassVar[tuple[str, ...]] = ("data.negative",)
    baseline_packages: ClassVar[tuple[str, ...]] = ("sklearn",)
    metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson", "mrr", "recall_at_1", "recall_at_10")
    default_metric: ClassVar[str] = "spearman"
    metric_titles: ClassVar[Mapping[str, str]] = {
        "spearman": "Spearman", "pearson": "Pearson", "mrr": "mean reciprocal rank",
        "recall_at_1": "own text found first", "recall_at_10": "own text among the first ten",
    }  # fmt: skip
    is_implied: ClassVar[bool] = False  # an encoder without a head may be for anything
    default_batch: ClassVar[int] = 64
    contained_texts_leak: ClassVar[bool] = False

    scored: bool = True  # pairs have scores
    pooling: Pooling = field(default_factory=partial(Pooling, normalize=True))

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        is_bare = not set(network.heads) - {"pooler"} and not network.architecture.is_encoder_decoder
        return cls() if is_bare else None

    def settings(self) -> dict[str, Any]:
        return {"scored": self.scored}

    def with_pooling(self, pooling: Pooling) -> Self:
        return replace(self, pooling=replace(pooling, normalize=True, files={}))

    def for_model(self, head: str, spec: InputSpec, train: Sequence[Example], section: FinetuneSection) -> Self:
        return replace(self, pooling=replace(self.pooling, most_tokens=spec.most_tokens))

    @property
    def outputs(self) -> int:
        return 0

    def head_in(self, family: type[Family] | Family) -> str:
        return self.head

    # Data.

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        texts: tuple[str, ...] = given_pair(values)
        if not with_gold:
            return Example(texts, None)
        if (negative := values.get("negative")) is not None:
            texts += (read_text(negative, "negative"),)
        return Example(texts, read_number(values["score"], "score") if "score" in values else None)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        scores = {example.gold for example in train}
        if None not in scores and len(scores) < 2:
            raise InputError("All training examples have the same score. Is it the right column (finetune.data.score)?")
        if None not in scores and any(len(example.given) > 2 for example in train):
            raise InputError("The training data has scores and negatives. Scored pairs need no negatives: remove one.")
        return replace(self, scored=None not in scores)

    def check(self, example: Example) -> None:
        if (example.gold is not None) != self.scored:
            raise Unusable("has no score" if self.scored else "has a score, which the training data has not")

    def compared_texts(self, example: Example) -> tuple[str, ...]:
        return example.given[:2]

    # The network.

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        """An input holds all texts of an example, to be read apart."""
        encoded = encode_texts([text for example in examples for text in example.given], spec)
        ends = np.cumsum([0, *(len(example.given) for example in examples)])
        found = []
        for number, ((start, end), example) in enumerate(zip(pairwise(ends), examples, strict=True)):
            ids = [one.ids if len(one.ids) else np.zeros(1, np.int32) for one in encoded[start:end]]
            was_cut = any(one.was_cut for one in encoded[start:end])
            lengths = tuple(map(len, ids))
            found.append(Input(number, np.concatenate(ids), None, (example.gold, example.given), was_cut, lengths))
        return found

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        counts, pooling = {self.name: len(inputs)}, self.pooling.kind
        if self.scored:
            scores = torch.tensor([one.targets[0] for one in inputs], dtype=torch.float32)
            return Batch(packed, answers={self.name: RankedAnswers(pooling, scores)}, counts=counts)
        texts = [one.targets[1] for one in inputs]
        starts = _starts(inputs)
        others = [start + 1 for start in starts] + [
            start + place for start, given in zip(starts, texts, strict=True) for place in range(2, len(given))
        ]
        answers = ContrastiveAnswers(pooling, torch.tensor(starts), torch.tensor(others), _copies(texts))
        return Batch(packed, answers={self.name: answers}, counts=counts)

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[PairVectors]:
        rows = unit_rows(hidden, packed, self.pooling.kind).cpu().numpy()
        return [(rows[start], rows[start + 1]) for start in _starts(inputs)]

    def files(self, network: Network) -> dict[str, bytes]:
        return self.pooling.to_files(network.width)

    # Judging.

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return self.metrics[:2] if self.scored else self.metrics[2:]

    @property
    def selection_metric(self) -> str | None:
        return None if self.metric == LOSS else self.metric or self.known_metrics[0]

    def main_metric(self, figures: Mapping[str, float]) -> str:
        return self.selection_metric or self.known_metrics[0]

    def figures(self, examples: Sequence[Example], answers: Sequence[PairVectors]) -> dict[str, float]:
        if self.scored:
            return order_figures([example.gold for example in examples], _cosines(answers))
        return _means(self._credits(examples, answers))

    def judge(self, examples: Sequence[Example], answers: Sequence[PairVectors]) -> Judged:
        if not self.scored:
            each = self._credits(examples, answers)
            intervals = {name: mean_interval(values) for name, values in each.items()}
            return Judged(_means(each), intervals, each["mrr"], 1 - each["mrr"])
        gold, found = np.asarray([example.gold for example in examples]), _cosines(answers)
        intervals = example_intervals(len(gold), lambda rows: order_figures(gold[rows], found[rows]))
        off = np.abs(_shares(gold) - _shares(found))
        return Judged(self.figures(examples, answers), intervals, 1 - off, off)

    def _credits(self, examples: Sequence[Example], answers: Sequence[PairVectors]) -> dict[str, np.ndarray]:
        first, second = (stacked([answer[side] for answer in answers]) for side in (0, 1))
        return retrieval_credits(ranks_of_own(first, second, [example.given[1] for example in examples]))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[PairVectors]]:
        known = [text for one in train for text in one.given[:2]]
        first, second = pair_vectors(known, *([one.given[side] for one in examples] for side in (0, 1)))
        return "cosine of TF-IDF vectors", list(zip(first, second, strict=True))

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[PairVectors], int]:
        first, second = (unit_vectors(embed([one.given[side] for one in examples])) for side in (0, 1))
        return "cosine of untuned vectors", list(zip(first, second, strict=True)), 0

    # Output.

    def shown(self, example: Example, answer: PairVectors, *, details: bool = False) -> dict[str, Any]:
        return {"score": round(float(_cosines([answer])[0]), 6)}

    def in_words(self, example: Example) -> str:
        return "\n".join(example.given[:2])

    def gold_in_words(self, example: Example) -> str:
        return "belong together" if example.gold is None else f"{example.gold:g}"

    def answer_in_words(self, example: Example, answer: PairVectors) -> str:
        return f"{_cosines([answer])[0]:.2f}"


def _starts(inputs: Sequence[Input]) -> list[int]:
    """The number of each input's first sequence."""
    return np.cumsum([0, *(len(one.parts) for one in inputs)])[:-1].tolist()


def _copies(texts: Sequence[tuple[str, ...]]) -> Tensor:
    """(N, N + M): where another example's text is the same as this example's first or second text. It would be told
    apart from itself.
    """
    others = [given[1] for given in texts] + [text for given in texts for text in given[2:]]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for given in texts for text in given))}
    first, second = (torch.tensor([numbers[given[side]] for given in texts]) for side in (0, 1))
    other = torch.tensor([numbers[text] for text in others])
    same = (first[:, None] == other) | (second[:, None] == other)
    same[:, : len(texts)].fill_diagonal_(False)
    return same


def _cosines(answers: Sequence[PairVectors]) -> np.ndarray:
    first, second = (stacked([answer[side] for answer in answers]) for side in (0, 1))
    return row_products(first, second)


def _means(credits: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in credits.items()}


def _shares(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1."""
    return rank_of_each(values) / len(values)
