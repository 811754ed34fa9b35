"""Which samples make up step `i`: a pure function of seed and step, so a checkpoint stores no sampler state.

Samples are numbered through the whole training, epoch after epoch; each epoch is a new keyed shuffle. Several sources
are mixed in rounds. Each round has a fixed number of slots for each source, in shuffled order, so the mixture is exact
in every round and training can start at any sample. A part of a step takes every n-th of its samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from weft.errors import RecipeError
from weft.tokens.keyed_shuffle import KeyedShuffle, shuffle_epochs

ROUND_SIZE = 1000  # slots of a round: weights are exact to 0.1 %


class SampleIndex(NamedTuple):
    source: int
    epoch: int  # of that source
    sample: int


@dataclass(frozen=True)
class Order:
    sizes: tuple[int, ...]  # samples of each source
    weights: tuple[float, ...]
    seed: int

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise RecipeError("A source has no samples: it is shorter than one sequence.")
        if len(self.weights) != len(self.sizes) or min(self.weights) <= 0:
            raise RecipeError("Each source needs a weight above 0.")

    def batch(self, step: int, size: int, *, part: int = 0, parts: int = 1) -> list[SampleIndex]:
        """The samples of step `step`, which has `size` of them; or one of several parts of them."""
        return self[np.arange(step * size + part, (step + 1) * size, parts)]

    def __getitem__(self, numbers: Sequence[int] | np.ndarray) -> list[SampleIndex]:
        """The n-th samples of the whole training, for each n in `numbers`."""
        numbers = np.asarray(numbers, dtype=np.int64)
        sources, numbers = self._mixed(numbers)
        epochs, samples = np.empty_like(numbers), np.empty_like(numbers)
        for source, size in enumerate(self.sizes):
            here = sources == source
            epochs[here], places = np.divmod(numbers[here], size)
            samples[here] = shuffle_epochs(size, self.seed + source, epochs[here], places)
        return list(map(SampleIndex, sources.tolist(), epochs.tolist(), samples.tolist()))

    def _mixed(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each sample, and its number among the samples of that source."""
        if len(self.sizes) == 1:
            return np.zeros_like(numbers), numbers
        rounds, places = np.divmod(numbers, ROUND_SIZE)
        sources, ranks = np.empty_like(numbers), np.empty_like(numbers)
        for round_ in np.unique(rounds).tolist():
            here = rounds == round_
            sources[here], ranks[here] = (part[places[here]] for part in self._round(round_))
        return sources, rounds * np.asarray(self._shares)[sources] + ranks

    def _round(self, round_: int) -> tuple[np.ndarray, np.ndarray]:
        """For each slot of the round, its source and how many earlier slots have the same source."""
        pattern = np.repeat(np.arange(len(self.sizes)), self._shares)
        sources = pattern[KeyedShuffle(ROUND_SIZE, self.seed, round_)[np.arange(ROUND_SIZE)]]
        ranks = np.empty(ROUND_SIZE, np.int64)
        for source, share in enumerate(self._shares):
            ranks[sources == source] = np.arange(share)
        return sources, ranks

    @cached_property
    def _shares(self) -> list[int]:
        """Slots of each source in a round, by largest remainder; at least one each."""
        exact = np.asarray(self.weights) / sum(self.weights) * ROUND_SIZE
        shares = np.maximum(np.floor(exact).astype(int), 1)
        while shares.sum() != ROUND_SIZE:
            step = 1 if shares.sum() < ROUND_SIZE else -1
            gap = (exact - shares) * step
            gap[(shares == 1) & (step < 0)] = -np.inf
            shares[int(np.argmax(gap))] += step
        return shares.tolist()
