"""Survives work that kills its process.

While a piece is worked on, a mark next to its folder names the process and the part. If a worker dies (out of memory,
a crash in a library, no progress for ten minutes), the marks show which pieces were in progress. Each of these is
repeated alone in its own process. A part at which two processes died is put aside with the reason, and the build
continues. A build that was itself killed leaves marks too. These do not count as deaths, but the pieces are repeated
alone first, in case they caused it.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weft.corpus.engine import Piece, PieceFigures, work_on
from weft.errors import InputError
from weft.progress import say

_MOST_DEATHS = 2
STALLED_SECONDS = 600.0  # without progress
_OUT_OF_MEMORY = 77  # exit code of a process that ran out of memory
_NOWHERE = -1  # before the first part or after the last

PieceWork = Callable[[Piece], PieceFigures]


class Mark:
    """Marks a piece as in progress. The mark stays if the process dies or runs out of memory."""

    def __init__(self, piece: Piece) -> None:
        self.file = mark_of(piece)
        self.last = 0.0

    def __enter__(self) -> Self:
        self.at(_NOWHERE)
        return self

    def at(self, part: int) -> None:
        self.file.write_text(json.dumps([os.getpid(), part]), "utf-8")

    def beat(self) -> None:
        if (now := time.monotonic()) - self.last > 1.0:
            self.last = now
            self.file.touch()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, MemoryError):
            self.file.unlink(missing_ok=True)


def mark_of(piece: Piece) -> Path:
    return Path(piece["folder"]).with_suffix(".mark")


def work_safely_on(pieces: Sequence[Piece], work: PieceWork, workers: int | None = None) -> Iterator[PieceFigures]:
    """Like `engine.work_on`, for work that leaves marks."""
    for piece in pieces:
        if mark_of(piece).exists():
            _work_alone_on(piece, work, deaths=0)
    done = 0
    while done < len(pieces):
        try:
            with _watched(pieces):
                for figures in work_on(pieces[done:], work, workers):
                    done += 1
                    yield figures
        except InputError:
            raise
        except Exception:
            under_way = [piece for piece in pieces[done:] if mark_of(piece).exists()]
            if not under_way:  # an error in weft, not in a worker
                raise
            say(f"A worker process died. Its {len(under_way)} pieces in progress are repeated one by one.")
            for piece in under_way:
                _work_alone_on(piece, work, deaths=1)


def _work_alone_on(piece: Piece, work: PieceWork, deaths: int) -> None:
    """Repeats the piece until it is done. A part is put aside after `_MOST_DEATHS` deaths."""
    died: Counter[int] = Counter({_part(piece): deaths})
    mark_of(piece).unlink(missing_ok=True)  # otherwise its age would make the next process look stalled
    aside: dict[str, str] = {}
    for _ in range(_MOST_DEATHS * (len(piece["parts"]) + 1)):
        reason = _run_alone({**piece, "aside": aside}, work)
        part = _part(piece)
        mark_of(piece).unlink(missing_ok=True)
        if reason is None:
            return
        died[part] += 1
        if died[part] >= _MOST_DEATHS:
            gone = range(len(piece["parts"])) if part == _NOWHERE else [part]
            aside |= {str(number): f"{reason} ({died[part]} times) and was put aside" for number in gone}
            for number in gone:
                say(f"{piece['parts'][number]['shown']} {aside[str(number)]}.")
    raise AssertionError("every part was put aside, and yet a process died")


def _run_alone(piece: Piece, work: PieceWork) -> str | None:
    """Runs the piece in a process of its own. Returns why the process died; None if it did not."""
    command = [
        sys.executable,
        "-c",
        "from weft.corpus.quarantine import run_piece; run_piece()",
        work.__module__,
        work.__name__,
    ]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **pipes)  # noqa: S603, ourselves
    is_stalled = threading.Event()
    stop = threading.Event()
    watcher = threading.Thread(target=_watch_one, args=(piece, process, stop, is_stalled), daemon=True)
    watcher.start()
    try:
        answer, _ = process.communicate(json.dumps(piece))
    except BaseException:
        process.kill()
        raise
    finally:
        stop.set()
        watcher.join()
    if process.returncode == 0:
        if fault := json.loads(answer).get("error"):
            raise InputError(fault)
        return None
    if is_stalled.is_set():
        return f"blocked a process for {STALLED_SECONDS:,.0f} seconds"
    if process.returncode == _OUT_OF_MEMORY:
        return "used up the memory"
    if process.returncode < 0:
        return f"killed the process that read it (signal {-process.returncode})"
    raise RuntimeError("a piece of work failed; its error is printed above")


def run_piece() -> None:
    """The main function of the process that runs one piece."""
    module, name = sys.argv[1:]
    piece = json.loads(sys.stdin.read())
    try:
        getattr(importlib.import_module(module), name)(piece)
    except InputError as error:
        print(json.dumps({"error": str(error)}))
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    else:
        print("{}")


def _part(piece: Piece) -> int:
    """The part at which the last process was."""
    return _read(mark_of(piece))[1]


def _read(mark: Path) -> tuple[int, int]:
    try:
        process, part = json.loads(mark.read_text("utf-8"))
        return int(process), int(part)
    except (OSError, ValueError, TypeError):
        return 0, _NOWHERE


def _watch_one(
    piece: Piece, process: "subprocess.Popen[str]", stop: threading.Event, is_stalled: threading.Event
) -> None:
    while not stop.wait(0.2):
        if _age(mark_of(piece)) > STALLED_SECONDS:
            is_stalled.set()
            process.kill()
            return


@contextmanager
def _watched(pieces: Sequence[Piece]) -> Iterator[None]:
    """Kills workers on this machine that make no progress."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(5.0):
            for mark in map(mark_of, pieces):
                process, _ = _read(mark) if _age(mark) > STALLED_SECONDS else (0, 0)
                if process not in (0, os.getpid()):
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)

    watcher = threading.Thread(target=watch, daemon=True)
    if os.environ.get("DAFT_RUNNER", "native").lower() != "ray":  # with Ray the processes may be on other machines
        watcher.start()
    try:
        yield
    finally:
        stop.set()


def _age(mark: Path) -> float:
    try:
        return time.time() - mark.stat().st_mtime
    except OSError:
        return 0.0
