"""The processes that train one model together, as one of them sees them.

`Processes` is the case of a single process. Every decision that several processes must agree on goes through it: which
samples of the global batch a process takes, over how many items a loss is averaged, whether to stop, and who writes.
The first process alone claims the run folder, trains the tokenizer, writes tokens, plans, logs, saves and reports.

A group of several processes overrides `gather`, `sum_`, `max_`, `swap` and `collect`. If a process fails, its launcher
must end the others; they wait for it.

With tensor parallel training the processes are a grid. Those of a row, `tensor`, compute the same samples, each with
its part of the network; those of a column, `data`, have the same part and share the samples. Without it all are one
column.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from torch import Tensor

from weft.devices import checked_device, local_device
from weft.progress import say
from weft.recipe.recipe import Recipe
from weft.train.repeatable import fix_workspace

PIECES = 8  # of a step, if several processes share it

_T = TypeVar("_T")


def default_pieces(world: int, samples: int) -> int | None:
    """Of a step of so many samples. Any number of processes up to this reaches the same result."""
    return None if world == 1 else max(min(PIECES, samples), world)


def alone(recipe: Recipe) -> "Processes":
    """A single process, on the device that the recipe names."""
    return Processes().on("auto" if recipe.processes is None else recipe.processes.device)


@dataclass(frozen=True)
class Processes:
    rank: int = 0
    world: int = 1  # number of processes
    device: str = field(default_factory=local_device)
    is_sharded: bool = False  # each keeps a part of every weight
    is_exact: bool = True  # the weights do not depend on the number of processes
    grid: "Grid | None" = None
    zero: int | None = None  # the stage of DeepSpeed's ZeRO, if that trains

    @property
    def data(self) -> "Processes":
        """Those that share the samples of a step."""
        return self if self.grid is None else self.grid.data

    @property
    def tensor(self) -> "Processes":
        """Those that share the computation of each sample."""
        return Processes(device=self.device) if self.grid is None else self.grid.tensor

    @property
    def has_whole_weights(self) -> bool:
        return not self.is_sharded and self.tensor.world == 1

    def on(self, device: str) -> Self:
        """The same processes on this kind of device: auto, cpu, cuda or mps. Raises InputError if it is not there."""
        found = str(checked_device(device))
        fix_workspace(found)
        return replace(self, device=found)

    def gather(self, value: _T) -> list[_T]:
        """The value that each process gave, by rank. Values are plain data: numbers, strings, lists, mappings."""
        return [value]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""

    def max_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by the largest elements of all processes."""

    def begin_sum(self, tensor: Tensor) -> Callable[[], None]:
        """As `sum_`, of one tensor, which is not to be touched until the function returned has been called."""
        self.sum_([tensor])
        return lambda: None

    def swap(self, parts: Sequence[Tensor], rows: Sequence[int]) -> list[Tensor]:
        """Send `parts[r]` to process r. Returns what each process sent here, by rank; r sends `rows[r]` rows."""
        return list(parts)

    def collect(self, share: Tensor) -> Tensor:
        """The shares of all processes, which are equally long, end to end."""
        return share

    def join(self, ranks: Sequence[int]) -> "Processes":
        """Some of the processes. All must ask for the same groups in the same order."""
        return self

    def own_pieces(self, pieces: int, rank: int | None = None) -> range:
        """The pieces of a step that this process computes, or that of another rank: neighbours, and evenly shared. With
        sharded weights the processes take turns, because they must work on neighbours at the same time.
        """
        rank = self.rank if rank is None else rank
        if self.is_sharded:
            return range(rank, pieces, self.world)
        return range(rank * pieces // self.world, (rank + 1) * pieces // self.world)

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


@dataclass(frozen=True)
class Grid:
    """This process's column and its row."""

    data: Processes
    tensor: Processes
