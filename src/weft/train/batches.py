"""The batches of a step: a function of the seed and the step, the same whoever asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from weft.objectives.objective import Batch, Objective
from weft.tokens.order import Order, SampleIndex
from weft.train.processes import Processes
from weft.train.spec import TrainSpec


@dataclass(frozen=True)
class StepBatches:
    """Called with a step, counted from 0, it returns this process's batches of that step."""

    objectives: Sequence[Objective]  # one per source
    order: Order
    spec: TrainSpec
    processes: Processes = field(default_factory=Processes)

    def __call__(self, step: int) -> list[Batch]:
        rank, world = self.processes.rank, self.processes.world
        return list(self._pieces(self.order.batch(step, self.spec.samples, process=rank, processes=world)))

    def _pieces(self, indices: list[SampleIndex]) -> Iterator[Batch]:
        """Source by source within each of the pieces that accumulation asks for."""
        size = -(-len(indices) // self.spec.accumulation)
        for start in range(0, len(indices), size):
            piece = indices[start : start + size]
            for source, objective in enumerate(self.objectives):
                mine = [index for index in piece if index.source == source]
                if mine:
                    samples, epochs = [index.sample for index in mine], [index.epoch for index in mine]
                    yield objective.batch(samples, epochs, self.spec.seed)
