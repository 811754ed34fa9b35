"""The processes that train one model together, as one of them sees them.

`Processes` is the case of a single process. Every decision that several processes must agree on goes through it: which
samples of the global batch a process takes, over how many items a loss is averaged, whether to stop, and who writes.
The first process alone claims the run folder, trains the tokenizer, writes tokens, plans, logs, saves and reports.

A group of several processes overrides two methods, `gather` and `sum_`. If a process fails, its launcher must end the
others; they wait for it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.progress import say

_T = TypeVar("_T")


def local_device() -> str:
    """The device of a single process: the GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    world: int = 1  # number of processes
    device: str = field(default_factory=local_device)

    def gather(self, value: _T) -> list[_T]:
        """The value that each process gave, by rank. Values are plain data: numbers, strings, lists, mappings."""
        return [value]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: _T) -> _T:
        """The first process's value."""
        return self.gather(value)[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return any(self.gather(flag))

    def barrier(self) -> None:
        """Wait for all processes."""
        self.gather(None)

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums by name over all processes. A process may lack some names."""
        total: Counter[str] = Counter()
        for each in self.gather(dict(numbers)):
            for name, number in each.items():
                total[name] += number  # type: ignore[assignment]
        return dict(total)

    def step_seed(self, seed: int, step: int) -> int:
        """The seed of dropout: different in every step and every process."""
        key = [seed, step] if self.is_first else [seed, step, self.rank]
        return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)

    @contextmanager
    def first_goes_ahead(self) -> Iterator[None]:
        """The first process runs the block, then the others do. They find the files that the first has written."""
        if not self.is_first:
            self.barrier()
        yield
        if self.is_first:
            self.barrier()

    def say(self, text: str) -> None:
        """Print a line, in the first process only."""
        if self.is_first:
            say(text)
