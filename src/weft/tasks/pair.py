"""Two texts, one label about both: does one follow from the other, do they say the same?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.evaluate.baselines.frozen import pair_features
from weft.evaluate.baselines.pairs import PairClassifier
from weft.tasks.classify import Classify
from weft.tasks.encode import encode_pairs
from weft.tasks.labels import read_text
from weft.tasks.task import Embed, Example, Input, InputSpec


def given_pair(values: Mapping[str, Any]) -> tuple[str, str]:
    return read_text(values.get("text"), "first text"), read_text(values.get("second"), "second text")


def pair_in_words(example: Example) -> str:
    first, second = example.given
    return f"{first}\n{second}"


@dataclass(frozen=True)
class Pair(Classify):
    name: ClassVar[str] = "pair"
    counted_as: ClassVar[str] = "pairs"
    compares_inside: ClassVar[bool] = False
    roles: ClassVar[tuple[str, ...]] = ("text", "second", "label")

    def given(self, values: Mapping[str, Any]) -> tuple[str, str]:
        return given_pair(values)

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        return self._asked(encode_pairs([example.given for example in examples], spec), examples)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        first, second = zip(*(one.given for one in train), strict=True)
        model = PairClassifier.fit(first, second, self._numbers(train).tolist(), len(self.labels))
        return "TF-IDF of the pair + logistic regression", list(
            model.probabilities(*map(list, zip(*(one.given for one in examples), strict=True)))
        )

    def _features(self, examples: Sequence[Example], embed: Embed) -> list[np.ndarray]:
        return pair_features(*(embed([one.given[side] for one in examples]) for side in (0, 1)))

    def in_words(self, example: Example) -> str:
        return pair_in_words(example)

    def compared(self, example: Example) -> tuple[str, ...]:
        return example.given
