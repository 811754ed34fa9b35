"""Runs pieces of work in parallel, on the cores of this machine or on a Ray cluster.

daft distributes the pieces over processes; its runner decides where these are (`DAFT_RUNNER=ray`). A piece is a JSON
object. Its worker writes the result to disk atomically and returns only a few figures. So little data moves, the order
does not matter, and a killed build continues with the missing pieces.
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
is_command = False  # set by the command line: the process may be ended on Ctrl-C


def work_on(
    pieces: Sequence[Piece], work: Callable[[Piece], PieceFigures], workers: int | None = None
) -> Iterator[PieceFigures]:
    """Yields `work(piece)` in the order of the pieces. `work` is a top-level function of a module.

    An InputError in a worker is raised here again.
    """
    if len(pieces) <= 1 or workers == 1:  # starting a process would take longer
        yield from map(work, pieces)
        return
    os.environ.setdefault("DAFT_PROGRESS_BAR", "0")  # weft shows its own progress
    os.environ.setdefault("DO_NOT_TRACK", "1")
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
    # Creating the iterator may already start workers.
    with _safe_path(), _interruptible(), _closing(answers.iter_rows()) as rows:
        for row in rows:
            answer = json.loads(row["answer"])
            if "error" in answer:
                raise InputError(answer["error"])
            yield answer["figures"]


def exit_process(code: Any, *, at_once: bool = False) -> NoReturn:
    """Ends the process with this exit code; `at_once`: without the interpreter's shutdown. After an error, daft's
    threads may still run and abort the interpreter during shutdown, which would lose the code.
    """
    if at_once or (code and "daft" in sys.modules):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Workers do not import from the user's folder: a random.py there must not shadow the standard library. The
    variable is removed again, since a script that this process starts later may need the modules beside it.
    """
    if "PYTHONSAFEPATH" in os.environ:
        yield
        return
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]


@contextmanager
def _closing(rows: Any) -> Iterator[Any]:
    """Closes the iterator at the end. Closed early, daft prints an unraisable exception, which is suppressed."""
    try:
        yield rows
    finally:
        before, sys.unraisablehook = sys.unraisablehook, lambda *_: None
        rows.close()
        sys.unraisablehook = before


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the work. daft does not notice it while it waits: the signal may reach one of its threads,
    and without its workers it may wait forever. Finished pieces are on disk, so a command can end at any time.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or not hasattr(signal, "pthread_kill"):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # every signal writes its number to the pipe
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if os.read(reader, 1) == bytes([signal.SIGINT]) and not done.is_set():
                if is_command:
                    if sys.stderr.isatty():
                        sys.stderr.write("\x1b[?25h\n")  # show the cursor again, which the bar hides
                    say("weft: interrupted. Run the same command again to resume.")
                    os._exit(130)
                signal.pthread_kill(main.ident or 0, signal.SIGINT)  # wakes the main thread
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
