"""Ctrl-C and SIGTERM ask a training run to stop after the current step; a second Ctrl-C does not wait."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.progress import say

_SIGNAL_AT_PARENTS_END = 1  # of prctl(2)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a stop was asked for. Python allows handlers in the main thread only;
    elsewhere signals keep their handlers, and the function is always false.
    """
    if threading.current_thread() is not threading.main_thread():
        say(
            "Training runs outside the main thread: Ctrl-C is not handled here. --resume continues from the last "
            "checkpoint."
        )
        yield lambda: False
        return
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    earlier = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """Asks the system for SIGTERM when the process that started this one ends. Nobody else would end the processes of a
    torchrun that was killed. Linux only.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGTERM)
