"""The batches of a step: a function of the seed and the step, the same whoever asks.

A step is cut into a fixed number of pieces (`TrainSpec.pieces`), whatever the number of processes. Each process has a
run of neighbouring pieces.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.objectives.objective import Batch, Objective
from weft.tokens.order import Order, SampleIndex
from weft.train.processes import Processes
from weft.train.spec import TrainSpec


class StepPiece(NamedTuple):
    number: int  # in its step
    batches: list[Batch]


@dataclass(frozen=True)
class StepBatches:
    """Called with a step, counted from 0, it returns this process's pieces of that step."""

    objectives: Sequence[Objective]  # one per source
    order: Order
    spec: TrainSpec
    processes: Processes = field(default_factory=Processes)

    def __call__(self, step: int) -> list[StepPiece]:
        samples, count = self.spec.samples, self.spec.pieces
        return [
            StepPiece(number, list(self._batches(self.order.batch(step, samples, part=number, parts=count))))
            for number in self.processes.data.own_pieces(count)
        ]

    def _batches(self, indices: list[SampleIndex]) -> Iterator[Batch]:
        """Source by source within each of the parts that accumulation asks for."""
        size = -(-len(indices) // self.spec.accumulation)
        for start in range(0, len(indices), size):
            part = indices[start : start + size]
            for source, objective in enumerate(self.objectives):
                mine = [index for index in part if index.source == source]
                if mine:
                    samples, epochs = [index.sample for index in mine], [index.epoch for index in mine]
                    yield objective.batch(samples, epochs, self.spec.seed)
