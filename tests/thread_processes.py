"""Processes that are threads of one process: enough to test what several of them agree on."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from weft.train.processes import Processes


@dataclass(frozen=True)
class Shared:
    barrier: threading.Barrier
    values: dict[int, Any] = field(default_factory=dict)
    joined: dict[tuple[int, ...], "Shared"] = field(default_factory=dict)  # some of the processes, by their ranks
    lock: threading.Lock = field(default_factory=threading.Lock)

    def abort(self) -> None:
        """Nobody waits any longer."""
        self.barrier.abort()
        for group in self.joined.values():
            group.barrier.abort()


@dataclass(frozen=True)
class ThreadProcesses(Processes):
    device: str = "cpu"
    shared: Shared = field(kw_only=True)

    def gather(self, value):
        self.shared.values[self.rank] = value
        self.shared.barrier.wait()
        found = [self.shared.values[rank] for rank in range(self.world)]
        self.shared.barrier.wait()  # nobody writes before all have read
        return found

    @torch.no_grad()
    def sum_(self, tensors):
        of_all = self.gather([tensor.clone() for tensor in tensors])
        for place, tensor in enumerate(tensors):
            tensor.copy_(sum(of_one[place] for of_one in of_all))

    @torch.no_grad()
    def max_(self, tensors):
        of_all = self.gather([tensor.clone() for tensor in tensors])
        for place, tensor in enumerate(tensors):
            tensor.copy_(torch.stack([of_one[place] for of_one in of_all]).amax(0))

    def swap(self, parts, rows):
        received = [of_one[self.rank].clone() for of_one in self.gather(list(parts))]
        assert [len(part) for part in received] == list(rows)
        return received

    def collect(self, share):
        return torch.cat(self.gather(share))

    def join(self, ranks):
        with self.shared.lock:
            shared = self.shared.joined.setdefault(tuple(ranks), Shared(threading.Barrier(len(ranks), timeout=60)))
        rank = list(ranks).index(self.rank) if self.rank in ranks else -1
        return replace(self, rank=rank, world=len(ranks), shared=shared)


def run_as_processes(world: int, work: Callable[[Processes], Any]) -> list[Any]:
    """What `work` returns in each process. An error in one ends them all."""
    first = ThreadProcesses(0, world, shared=Shared(threading.Barrier(world, timeout=60)))

    def run(rank: int) -> Any:
        try:
            return work(replace(first, rank=rank))
        except BaseException:
            first.shared.abort()
            raise

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(run, range(world)))
