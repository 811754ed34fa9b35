"""Several processes that torchrun has started, joined by torch.distributed: gloo between CPUs, NCCL between GPUs.

    torchrun --nproc-per-node 4 -m weft pretrain recipe.yml

Values are sent as JSON, tensors as they are. No wait is endless: a process that is not heard of ends the run with a
sentence, and what is saved stays whole. Only preparations may take as long as they need; meanwhile the first process
gives a sign of life every few seconds.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from weft.errors import WeftError
from weft.progress import quieted
from weft.train.processes import Processes

JOIN_SECONDS, STEP_SECONDS = 300.0, 1800.0  # to find each other; to wait for the others within a step
_BEAT_SECONDS, _SILENT_SECONDS = 5.0, 120.0
_FAILED_SECONDS = 3.0  # in which the first process would report the same mistake

_T = TypeVar("_T")


class ProcessLost(WeftError):
    """Another process has ended or cannot be reached."""


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun, or a launcher that sets the same variables, has started several processes."""
    return int(environment.get("WORLD_SIZE", "1")) > 1


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has started the processes again after one of them ended (--max-restarts)."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))


@dataclass(frozen=True)
class ProcessGroup(Processes):
    store: dist.Store = field(kw_only=True)  # small values under names, which all processes see
    turns: Iterator[int] = field(default_factory=count)  # numbers of `first_goes_ahead`, the same in every process

    def gather(self, value: _T) -> list[_T]:
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        self.wait_for_all(lambda: dist.all_gather(sizes, torch.tensor([len(data)])))
        room = torch.zeros(int(max(sizes)), dtype=torch.uint8)
        room[: len(data)] = data
        found = [torch.empty_like(room) for _ in range(self.world)]
        self.wait_for_all(lambda: dist.all_gather(found, room))
        return [json.loads(bytes(part[: int(size)].numpy())) for part, size in zip(found, sizes, strict=True)]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self.wait_for_all(lambda tensor=tensor: dist.all_reduce(tensor))  # type: ignore[misc]

    def swap(self, parts: Sequence[Tensor], rows: Sequence[int]) -> list[Tensor]:
        sent = torch.cat([part.flatten() for part in parts])
        width, own = parts[0].shape[1], len(parts[0])
        received = torch.empty(sum(rows) * width, dtype=sent.dtype, device=sent.device)
        counts = [count * width for count in rows]
        self.wait_for_all(lambda: dist.all_to_all_single(received, sent, counts, [own * width] * self.world))
        return [part.view(-1, width) for part in received.split(counts)]

    def collect(self, share: Tensor) -> Tensor:
        whole = torch.empty(self.world * len(share), dtype=share.dtype, device=share.device)
        self.wait_for_all(lambda: dist.all_gather_into_tensor(whole, share))
        return whole

    @contextmanager
    def first_goes_ahead(self) -> Iterator[None]:
        done = f"done/{next(self.turns)}"
        if self.is_first:
            with _signs_of_life(self.store):
                yield
            self.store.set(done, "yes")
        else:
            self._wait_for_first(done)
            yield

    def _wait_for_first(self, done: str) -> None:
        """However long it takes, as long as the first process gives signs of life."""
        last, heard = b"", time.monotonic()
        while not self.store.check([done]):
            beat = self.store.get(_BEAT) if self.store.check([_BEAT]) else b""
            if beat != last:
                last, heard = beat, time.monotonic()
            elif time.monotonic() - heard > _SILENT_SECONDS:
                raise ProcessLost(f"Process {self.rank} has not heard of the first one for {_SILENT_SECONDS:.0f} s.")
            time.sleep(0.05)

    def wait_for_all(self, do: Callable[[], object]) -> None:
        try:
            do()
        except RuntimeError as error:  # torch.distributed has no narrower class for a lost connection
            raise ProcessLost(
                f"Process {self.rank} has lost the others: one of them has ended, or cannot be reached. Checkpoints "
                f"are whole; --resume continues, with any number of processes."
            ) from error


_BEAT = "beat"


@contextmanager
def _signs_of_life(store: dist.Store) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        number = 0
        while not ended.wait(_BEAT_SECONDS if number else 0.0):
            number += 1
            store.set(_BEAT, f"{time.time()} {number}")

    thread = threading.Thread(target=beat, name="weft-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """The processes that were launched together, or the only one."""
    if not is_launched():
        yield Processes()
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", "0"))
    has_gpus = torch.cuda.is_available()
    device = f"cuda:{local}" if has_gpus else "cpu"
    if has_gpus:
        torch.cuda.set_device(local)
    store = _meeting_place(rank, world)
    group = ProcessGroup(rank, world, device, store=store)
    group.wait_for_all(
        lambda: dist.init_process_group(
            "cpu:gloo,cuda:nccl" if has_gpus else "gloo",
            store=dist.PrefixStore("torch", store),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=STEP_SECONDS),
        )
    )
    try:
        with quieted(not group.is_first):
            yield group
    except WeftError as error:
        _fail_once(group, error)
        raise
    finally:
        dist.destroy_process_group()


def _meeting_place(rank: int, world: int) -> dist.Store:
    """The store of all processes, once they have all come."""
    limit, where = timedelta(seconds=JOIN_SECONDS), f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store: dist.Store = next(dist.rendezvous("env://", rank, world, timeout=limit))[0]
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(
            f"Process {rank} of {world} found nobody at {where} within {JOIN_SECONDS:.0f} s. "
            f"({str(error).splitlines()[0]})"
        ) from error
    store = dist.PrefixStore(f"weft/{restarts()}", store)  # it still holds what was said before a restart
    names = [f"here/{number}" for number in range(world)]
    store.set(names[rank], "yes")
    try:
        store.wait(names, limit)
    except RuntimeError as error:
        missing = [number for number, name in enumerate(names) if not store.check([name])]
        raise ProcessLost(
            f"Of {world} processes, {', '.join(map(str, missing)) or 'some'} did not come to {where} within "
            f"{JOIN_SECONDS:.0f} s."
        ) from error
    return store


def _fail_once(group: ProcessGroup, error: WeftError) -> None:
    """A mistake that every process finds is reported by the first one only."""
    failed = "failed"
    if group.is_first:
        group.store.set(failed, "yes")
        return
    until = time.monotonic() + _FAILED_SECONDS
    while time.monotonic() < until:
        if group.store.check([failed]):
            raise SystemExit(error.exit_code) from None
        time.sleep(0.05)
