"""Pieces of work, many at a time: on the cores of this machine, or on the machines of a Ray cluster.

daft hands the pieces out to processes and its runner decides where those are (`DAFT_RUNNER=ray`). A piece says in plain
words what is to be done, and what it makes it writes to the disk itself, whole or not at all; only a few figures come
back. So nothing large travels, the order of the work does not matter, and a build that was killed goes on with the
pieces that are missing.
"""

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from weft.errors import InputError, needs
from weft.progress import say
from weft.threads import usable_cores

Piece = dict[str, Any]
PieceFigures = dict[str, Any]
is_command = False  # whether the process is ours to end


def work_on(
    pieces: Sequence[Piece], work: Callable[[Piece], PieceFigures], workers: int | None = None
) -> Iterator[PieceFigures]:
    """What `work`, a function at the top of a module, makes of each piece, in the order of the pieces. What a user can
    put right (`InputError`) is raised here as it was there.
    """
    if len(pieces) <= 1 or workers == 1:  # to start another process takes longer
        yield from map(work, pieces)
        return
    os.environ.setdefault("DAFT_PROGRESS_BAR", "0")  # there is one bar, ours
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # a random.py where somebody works is not the workers' random
    daft = needs("daft", "corpus", "to build a corpus")
    count = workers or usable_cores()

    @daft.cls(use_process=True, max_concurrency=count)
    class Worker:
        def __init__(self, module: str, name: str) -> None:
            self.work = getattr(importlib.import_module(module), name)

        @daft.method(return_dtype=daft.DataType.string())
        def __call__(self, piece: str) -> str:
            try:
                return json.dumps({"figures": self.work(json.loads(piece))})
            except InputError as error:
                return json.dumps({"error": str(error)})

    frame = daft.from_pydict({"piece": [json.dumps(piece) for piece in pieces]})
    answers = frame.into_batches(1).select(Worker(work.__module__, work.__name__)(daft.col("piece")).alias("answer"))
    # The first row may be asked for, and workers started, as soon as there is an iterator.
    with _interruptible(), _closing(answers.iter_rows()) as rows:
        for row in rows:
            answer = json.loads(row["answer"])
            if "error" in answer:
                raise InputError(answer["error"])
            yield answer["figures"]


def exit_process(code: Any) -> NoReturn:
    """End the process with this exit code. Where an error stopped daft in the middle, its threads may still be at work,
    and abort the interpreter while it winds down: the code would be lost.
    """
    if code and "daft" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


@contextmanager
def _closing(rows: Any) -> Iterator[Any]:
    """At the end, whatever it is. daft complains into the air when it is closed before all is done."""
    try:
        yield rows
    finally:
        before, sys.unraisablehook = sys.unraisablehook, lambda *_: None
        rows.close()
        sys.unraisablehook = before


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the work. While daft waits, it does not notice: the signal may reach one of its own threads, and once
    its workers are gone it may wait for ever. What is done is on the disk, so a command can end in the middle.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or not hasattr(signal, "pthread_kill"):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # every signal writes its number there
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if os.read(reader, 1) == bytes([signal.SIGINT]) and not done.is_set():
                if is_command:
                    if sys.stderr.isatty():
                        sys.stderr.write("\x1b[?25h\n")  # the cursor, which the bar hides
                    say("weft: interrupted. The same command goes on with it.")
                    os._exit(130)
                signal.pthread_kill(main.ident or 0, signal.SIGINT)  # wakes it up
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(before)
        os.write(writer, b"\0")
        watcher.join()
        os.close(reader)
        os.close(writer)
