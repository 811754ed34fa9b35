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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout

from weft.devices import device_of_process
from weft.errors import InputError, WeftError
from weft.progress import quieted
from weft.train.processes import Processes
from weft.train.repeatable import fix_workspace
from weft.train.signals import end_with_parent

JOIN_SECONDS, STEP_SECONDS = 300.0, 1800.0  # to find each other; to wait for the others within a step
_BEAT_SECONDS, _SILENT_SECONDS = 5.0, 120.0
_MESSAGE, _SIZE_BYTES = 1024, 8  # of a value that is sent at once, with its size before it
_FAILED_SECONDS = 3.0  # in which the first process would report the same mistake

_T = TypeVar("_T")


class ProcessLost(WeftError):
    """Another process has ended or cannot be reached."""


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun, or a launcher that sets the same variables, has started several processes."""
    return (environment.get("WORLD_SIZE") or "1") != "1"


class _Place(NamedTuple):
    """Of this process among all, as its launcher says."""

    rank: int
    world: int
    local: int  # on its machine
    meeting: str  # address and port


def _own_place(environment: Mapping[str, str] = os.environ) -> _Place:
    """Raises InputError if the launcher's variables are missing or wrong."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in needed if not environment.get(name)]:
        raise InputError(
            f"WORLD_SIZE is set, but {missing[0]} is not. Start several processes with torchrun, or set "
            f"{', '.join(needed)} in each."
        )
    numbers = []
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        said = environment.get(name, "0")
        if not said.isdecimal():
            raise InputError(f"The environment variable {name} is {said!r}, not a number.")
        numbers.append(int(said))
    rank, world, local, port = numbers
    if rank >= world:
        raise InputError(f"RANK is {rank} and WORLD_SIZE {world}: ranks are counted from 0.")
    return _Place(rank, world, local, f"{environment['MASTER_ADDR']}:{port}")


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has started the processes again after one of them ended (--max-restarts)."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))


@dataclass(frozen=True)
class ProcessGroup(Processes):
    store: dist.Store = field(kw_only=True)  # small values under names, which all processes see
    group: dist.ProcessGroup | None = None  # None: all processes
    local: int = 0  # the number of this process on its machine
    turns: Iterator[int] = field(default_factory=count)  # numbers of `first_goes_ahead`, the same in every process

    def on(self, device: str) -> "ProcessGroup":
        """GPUs are dealt by the number that a process has on its machine."""
        found = device_of_process(device, self.local, torch.cuda.device_count())
        fix_workspace(found)
        if torch.device(found).type == "cuda":
            torch.cuda.set_device(self.local)  # before NCCL's first use
        return replace(self, device=found)

    def gather(self, value: _T) -> list[_T]:
        if self.world == 1:  # a column of one
            return [value]
        data = json.dumps(value).encode()
        size = len(data).to_bytes(_SIZE_BYTES, "little")
        heads = self._gather_bytes((size + data)[:_MESSAGE].ljust(_MESSAGE, b"\0"))  # most values are small
        sizes = [int.from_bytes(head[:_SIZE_BYTES], "little") for head in heads]
        found = [head[_SIZE_BYTES:] for head in heads]
        if (rest := max(sizes) + _SIZE_BYTES - _MESSAGE) > 0:
            rests = self._gather_bytes(data[_MESSAGE - _SIZE_BYTES :].ljust(rest, b"\0"))
            found = [begin + end for begin, end in zip(found, rests, strict=True)]
        return [json.loads(part[:size]) for part, size in zip(found, sizes, strict=True)]

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        """Equally many of each process."""
        sent = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        found = [torch.empty_like(sent) for _ in range(self.world)]
        self.wait_for_all(lambda: dist.all_gather(found, sent, self.group))
        return [part.numpy().tobytes() for part in found]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self.wait_for_all(lambda tensor=tensor: dist.all_reduce(tensor, group=self.group))  # type: ignore[misc]

    def max_(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self.wait_for_all(lambda tensor=tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX, self.group))  # type: ignore[misc]

    def begin_sum(self, tensor: Tensor) -> Callable[[], None]:
        sent = dist.all_reduce(tensor, group=self.group, async_op=True)
        return lambda: self.wait_for_all(sent.wait)

    def swap(self, parts: Sequence[Tensor], rows: Sequence[int]) -> list[Tensor]:
        sent = torch.cat([part.flatten() for part in parts])
        width, own = parts[0].shape[1], len(parts[0])
        received = torch.empty(sum(rows) * width, dtype=sent.dtype, device=sent.device)
        counts = [count * width for count in rows]
        shares = [own * width] * self.world
        self.wait_for_all(lambda: dist.all_to_all_single(received, sent, counts, shares, self.group))
        return [part.view(-1, width) for part in received.split(counts)]

    def collect(self, share: Tensor) -> Tensor:
        whole = torch.empty(self.world * len(share), dtype=share.dtype, device=share.device)
        gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its name since torch 2.13
        self.wait_for_all(lambda: gather(whole, share, self.group))
        return whole

    def join(self, ranks: Sequence[int]) -> "ProcessGroup":
        group = dist.new_group(ranks, timeout=timedelta(seconds=STEP_SECONDS))
        rank = list(ranks).index(self.rank) if self.rank in ranks else -1
        return ProcessGroup(rank, len(ranks), self.device, store=self.store, group=group)

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
            raise _lost(self.rank) from error


@contextmanager
def lost_processes_noticed(rank: int) -> Iterator[None]:
    """For work of FSDP or another library, which asks the other processes for data within it."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error) or "Connection closed by peer" in str(error):
            raise _lost(rank) from error
        raise


def _lost(rank: int) -> ProcessLost:
    return ProcessLost(
        f"Process {rank} has lost the others: one of them has ended, or cannot be reached. Checkpoints are whole; "
        "--resume continues, with any number of processes."
    )


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
    end_with_parent()
    rank, world, local, meeting = _own_place()
    store = _meeting_place(rank, world, meeting)
    group = ProcessGroup(rank, world, "cpu", store=store, local=local)
    _connect(group, "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        with quieted(not group.is_first), lost_processes_noticed(rank):
            yield group
    except WeftError as error:
        _fail_once(group, error)
        raise
    finally:
        dist.destroy_process_group()


def _meeting_place(rank: int, world: int, meeting: str) -> dist.Store:
    """The store of all processes, once they have all come."""
    limit = timedelta(seconds=JOIN_SECONDS)
    try:
        store: dist.Store = next(dist.rendezvous("env://", rank, world, timeout=limit))[0]
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(
            f"Process {rank} of {world} did not find the others at {meeting} within {JOIN_SECONDS:.0f} s. "
            f"({str(error).splitlines()[0]})"
        ) from error
    store = dist.PrefixStore(f"weft/{restarts()}", store)  # it still holds what was said before a restart
    if store.add(f"came/{rank}", 1) > 1:
        raise InputError(f"Two processes at {meeting} have RANK {rank}.")
    names = [f"here/{number}" for number in range(world)]
    store.set(names[rank], str(world))
    try:
        store.wait(names, limit)
    except RuntimeError as error:
        missing = [number for number, name in enumerate(names) if not store.check([name])]
        raise ProcessLost(
            f"Of {world} processes, {', '.join(map(str, missing)) or 'some'} were not heard of at {meeting} within "
            f"{JOIN_SECONDS:.0f} s."
        ) from error
    for number, said in enumerate(store.multi_get(names)):
        if int(said) != world:
            raise InputError(f"WORLD_SIZE is {world} in process {rank} and {int(said)} in process {number}.")
    return store


def _connect(group: ProcessGroup, backends: str) -> None:
    """Connections between all processes. torch keeps its own limit in most places, not in all."""
    limit = timedelta(seconds=JOIN_SECONDS)
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            store, rank, world = dist.PrefixStore("torch", group.store), group.rank, group.world
            dist.init_process_group(backends, store=store, rank=rank, world_size=world, timeout=limit)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=connect, name="weft-connect", daemon=True)
    thread.start()
    thread.join(1.5 * JOIN_SECONDS)
    if failed or thread.is_alive():
        raise ProcessLost(
            f"Process {group.rank} of {group.world} could not connect to all others within {JOIN_SECONDS:.0f} s. If "
            "a machine has several networks, name the one that the others see: GLOO_SOCKET_IFNAME=eth0."
        ) from (failed[0] if failed else None)
    _set_pg_timeout(timedelta(seconds=STEP_SECONDS))


def _fail_once(group: ProcessGroup, error: WeftError) -> None:
    """A mistake that every process finds is reported by the first one only."""
    failed = "failed"
    with suppress(RuntimeError):  # the store may have ended with the first process, or with torchrun
        if group.is_first:
            group.store.set(failed, "yes")
            return
        until = time.monotonic() + _FAILED_SECONDS
        while time.monotonic() < until:
            if group.store.check([failed]):
                raise SystemExit(error.exit_code) from None
            time.sleep(0.05)
