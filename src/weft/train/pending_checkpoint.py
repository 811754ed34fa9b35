"""Checkpoints that are written while training goes on.

A checkpoint of some size is copied to the CPU's memory, where there is room for the copy, and a thread writes, hashes
and flushes the copy. Meanwhile the processes train; once all have written they rename the checkpoint into its place. A
small one, or one without room, is written at once.
"""

import re
import shutil
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft.errors import FolderError
from weft.folders import (
    MANIFEST,
    check_place,
    disk_errors,
    file_entry,
    left_folders,
    new_folder,
    put_in_place,
    to_json,
)
from weft.memory import free_memory
from weft.train.processes import Processes
from weft.train.stored_parts import OwnFile

STATE = "state.json"
LEAST_BYTES = 64 << 20  # less is written about as soon as it is copied
SHARE = 2  # of the free memory, a half may be taken


class _Start(NamedTuple):
    """What a process tells the others before a checkpoint is written."""

    folder: str | None  # the new one; only the first process makes it
    machine: str
    bytes: int
    free: int | None
    problem: str | None


class PendingCheckpoint:
    """Every process must begin and finish it. `is_waiting` tells whether training had to wait for want of memory."""

    def __init__(
        self,
        folder: Path,
        step: int,
        files: Sequence[OwnFile],
        *,
        keep: int,
        state: dict[str, Any],
        processes: Processes,
        at_once: bool = True,
    ) -> None:
        self.folder, self.step, self.files, self.processes = folder, step, files, processes
        self.keep, self.state = keep, {"step": step, **state}
        self.place = folder / f"step-{step:06}"
        self.entries: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None
        self.thread: threading.Thread | None = None
        starts = self._agree_on_start()
        is_large = max(start.bytes for start in starts) >= LEAST_BYTES
        self.is_waiting = not at_once and is_large and not _fits(starts)
        if at_once or not is_large or self.is_waiting:
            self._write()
        else:
            for file in files:
                file.copy_tensors()
            self.thread = threading.Thread(target=self._write, name="weft-checkpoint")
            self.thread.start()

    def _agree_on_start(self) -> list[_Start]:
        made, problem = None, None
        if self.processes.is_first:
            try:
                made = str(new_folder(check_place(self.place, mark=_mark(self.place))))
            except FolderError as error:
                self.error, problem = error, str(error)
        own = sum(file.bytes for file in self.files)
        starts = self.processes.gather(_Start(made, socket.gethostname(), own, free_memory(), problem))
        starts = [_Start(*start) for start in starts]
        if starts[0].problem is not None or starts[0].folder is None:
            raise self.error or FolderError(str(starts[0].problem))
        self.new = Path(starts[0].folder)
        return starts

    def _write(self) -> None:
        """This process's files. What went wrong is told when all finish: the others must know."""
        try:
            with disk_errors(self.new):
                self.entries = {path.name: file_entry(path) for path in (file.write(self.new) for file in self.files)}
        except Exception as error:
            self.error = error
        self.files = ()  # the copies take memory

    @property
    def is_written(self) -> bool:
        """By this process."""
        return self.thread is None or not self.thread.is_alive()

    def finish(self) -> Path:
        """Wait until all have written, and put it into its place. Raises what went wrong in any process."""
        if self.thread is not None:
            self.thread.join()
        try:
            told = self.processes.gather([self.entries, None if self.error is None else str(self.error)])
            self._raise_problem([problem for _, problem in told])
            if self.processes.is_first:
                self._put_in_place({name: entry for entries, _ in told for name, entry in entries.items()})
            self._raise_problem([self.processes.broadcast(None if self.error is None else str(self.error))])
        finally:
            self.discard()
        return self.place

    def _put_in_place(self, files: dict[str, dict[str, Any]]) -> None:
        try:
            with disk_errors(self.new):
                (self.new / STATE).write_bytes(to_json(self.state))
                (self.new / MANIFEST).write_bytes(to_json({"files": files | {STATE: file_entry(self.new / STATE)}}))
                # Of a damaged checkpoint of this step nothing stays: its parts may be those of other processes.
                put_in_place(self.new, self.place, ours=("*",))
        except FolderError as error:
            self.error = error
        else:
            remove_older(self.folder, self.step, self.keep, self.state.get("best"))

    def _raise_problem(self, problems: Sequence[str | None]) -> None:
        if self.error is not None:
            raise self.error
        for problem in filter(None, problems):
            raise FolderError(problem)

    def discard(self) -> None:
        """Leave nothing of it but what is in its place."""
        if self.thread is not None:
            self.thread.join()
        if self.processes.is_first:
            shutil.rmtree(self.new, ignore_errors=True)


def _mark(place: Path) -> str:
    """The file that shows that a folder is a checkpoint. A damaged one may lack one of them."""
    return MANIFEST if (place / MANIFEST).exists() else STATE


class CheckpointWriter:
    """The checkpoints of a run, one at a time."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self.pending: PendingCheckpoint | None = None
        self.has_said = False

    def remove_left(self) -> None:
        """Unfinished checkpoints of a killed run. Nobody else may be writing to the folder."""
        if self.processes.is_first:
            for left in left_folders(self.folder, "step-*"):
                shutil.rmtree(left, ignore_errors=True)

    def save(self, step: int, files: Sequence[OwnFile], *, keep: int, state: dict[str, Any], at_once: bool) -> None:
        """`finish` must have been called since the last one."""
        assert self.pending is None
        options: dict[str, Any] = {"keep": keep, "state": state, "processes": self.processes, "at_once": at_once}
        self.pending = PendingCheckpoint(self.folder, step, files, **options)
        if self.pending.is_waiting and not self.has_said:
            self.processes.say("Training waits while checkpoints are written: there is no memory for a copy of them.")
            self.has_said = True
        if self.pending.thread is None:
            self.finish()

    @property
    def is_written(self) -> bool:
        """Whether this process has done its part of a checkpoint that is on its way."""
        return self.pending is not None and self.pending.is_written

    def finish(self) -> None:
        """Put the checkpoint that is on its way, if any, into its place. Every process must call it."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.finish()

    def close(self) -> None:
        """Give up the checkpoint that is on its way."""
        if self.pending is not None:
            self.pending.discard()


def remove_older(folder: Path, step: int, keep: int, best: int | None) -> None:
    """Checkpoints before this step other than the newest and the best; `keep` stay, with that of this step. Later ones
    are damaged, or the run would have gone on from them.
    """
    older = [number for number in list_checkpoints(folder) if number < step]
    for number in sorted(older, reverse=True)[keep - 1 :]:
        if number != best:
            shutil.rmtree(folder / f"step-{number:06}", ignore_errors=True)


def list_checkpoints(folder: Path) -> list[int]:
    """The steps of all checkpoints, rising."""
    if not folder.is_dir():
        return []
    names = [re.fullmatch(r"step-(\d+)", item.name) for item in folder.iterdir()]
    return sorted(int(name[1]) for name in names if name)


def _fits(starts: Sequence[_Start]) -> bool:
    """Whether every machine has room for the copies of its processes."""
    for machine in {start.machine for start in starts}:
        there = [start for start in starts if start.machine == machine]
        free = [start.free for start in there if start.free is not None]
        if not free or SHARE * sum(start.bytes for start in there) > min(free):
            return False
    return True
