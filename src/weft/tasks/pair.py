"""Text pairs with one label per pair: entailment, paraphrase."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from weft.metrics.baselines.frozen import pair_features
from weft.metrics.baselines.pairs import PairClassifier
from weft.recipe.finetune import FinetuneSection
from weft.tasks.classify import Classify
from weft.tasks.encode import encode_pairs
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import read_text
from weft.tasks.scored_task import Embed


def given_pair(values: Mapping[str, Any]) -> tuple[str, str]:
    return read_text(values.get("text"), "first text"), read_text(values.get("second"), "second text")


def pair_in_words(example: Example) -> str:
    first, second = example.given
    return f"{first}\n{second}"


@dataclass(frozen=True)
class Pair(Classify):
    name: ClassVar[str] = "pair"
    counted_as: ClassVar[str] = "pairs"
    roles: ClassVar[tuple[str, ...]] = ("text", "second", "label")
    list_roles: ClassVar[tuple[str, ...]] = ()
    recipe_settings: ClassVar[tuple[str, ...]] = ("balanced", "label_smoothing")
    contained_texts_leak: ClassVar[bool] = False

    def given(self, values: Mapping[str, Any]) -> tuple[str, str]:
        return given_pair(values)

    def for_model(self, head: str, spec: InputSpec, train: Sequence[Example], section: FinetuneSection) -> Self:
        return self

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        return self._with_targets(encode_pairs([example.given for example in examples], spec), examples)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        first, second = zip(*(one.given for one in train), strict=True)
        model = PairClassifier.fit(first, second, self._numbers(train).tolist(), len(self.labels))
        sides = map(list, zip(*(one.given for one in examples), strict=True))
        return "TF-IDF of the pair + logistic regression", list(model.probabilities(*sides))

    def _features(self, examples: Sequence[Example], embed: Embed) -> list[np.ndarray]:
        return pair_features(*(embed([one.given[side] for one in examples]) for side in (0, 1)))

    def in_words(self, example: Example) -> str:
        return pair_in_words(example)

    def compared_texts(self, example: Example) -> tuple[str, ...]:
        return example.given
