"""Work that may kill the process it runs in, and what becomes of it.

A piece leaves a mark beside its folder while it is worked on: which process is at it, and at which part of it. If a
worker dies (memory runs out, a library crashes, it gives no sign of life), the marks tell what was under way. Each of
those pieces is then done alone, in a process of its own. A part at which two processes have died is put aside with the
reason, and the build goes on. A build that was killed itself leaves marks, too; that is no death of a worker, but those
pieces are done alone first, in case it was they that killed it.
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
STALLED_SECONDS = 600.0  # seconds without a sign of life
_OUT_OF_MEMORY = 77  # the exit code of a process that noticed it
_NOWHERE = -1  # before the first part, or behind the last

PieceWork = Callable[[Piece], PieceFigures]


class Mark:
    """That a piece is being worked on. Stays behind if the process dies, or memory runs out."""

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
    """As `engine.work_on`, of work that leaves marks."""
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
            if not under_way:  # a fault of ours
                raise
            say(f"A process died. {len(under_way)} pieces that were under way are done again, each by itself.")
            for piece in under_way:
                _work_alone_on(piece, work, deaths=1)


def _work_alone_on(piece: Piece, work: PieceWork, deaths: int) -> None:
    """Until it is done: every second death at a part puts it aside."""
    died: Counter[int] = Counter({_part(piece): deaths})
    mark_of(piece).unlink(missing_ok=True)  # its age is that of the dead, by which the next would be taken for stalled
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
            aside |= {str(number): f"{reason}, {died[part]} times: it was put aside" for number in gone}
            for number in gone:
                say(f"{piece['parts'][number]['shown']} {aside[str(number)]}.")
    raise AssertionError("every part was put aside, and yet a process died")


def _run_alone(piece: Piece, work: PieceWork) -> str | None:
    """Why the process died, or nothing."""
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
        return f"kept a process busy for {STALLED_SECONDS:,.0f} seconds"
    if process.returncode == _OUT_OF_MEMORY:
        return "took all memory"
    if process.returncode < 0:
        return f"killed the process that read it (signal {-process.returncode})"
    raise RuntimeError("a piece of work failed; what it said stands above")


def run_piece() -> None:
    """In the process of its own."""
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
    """Where the process was that worked on it last."""
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
    """Workers of this machine that give no sign of life are killed, as if they had died."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(5.0):
            for mark in map(mark_of, pieces):
                process, _ = _read(mark) if _age(mark) > STALLED_SECONDS else (0, 0)
                if process not in (0, os.getpid()):
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)

    watcher = threading.Thread(target=watch, daemon=True)
    if os.environ.get("DAFT_RUNNER", "native").lower() != "ray":  # whose processes may be elsewhere
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
