"""Make the batches of the next steps in a thread while the device computes the current one.

The batches are the same as without the thread: batch `i` is a function of the seed and `i`. An error is raised in the
loop at the step whose batch failed, so a run that ends before that step does not see it.
"""

import threading
from collections.abc import Callable
from queue import Empty, Queue
from types import TracebackType
from typing import Generic, Self, TypeVar

_Made = TypeVar("_Made")


class Prefetcher(Generic[_Made]):
    """A context manager. Call it with each step in order, from `first` on."""

    def __init__(self, make: Callable[[int], _Made], first: int, depth: int = 2) -> None:
        """At most `depth` steps wait in the queue."""
        self._make = make
        self._made: Queue[tuple[int, _Made | None, BaseException | None]] = Queue(depth)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(first,), name="weft-prefetch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        while self._thread.is_alive():  # it may wait for room in the queue
            try:
                self._made.get_nowait()
            except Empty:
                self._thread.join(0.01)

    def __call__(self, step: int) -> _Made:
        number, made, error = self._made.get()
        if error is not None:
            raise error
        if number != step:
            raise ValueError(f"the next step is {number}, not {step}")
        return made  # type: ignore[return-value]

    def _work(self, step: int) -> None:
        while not self._closing.is_set():
            try:
                self._made.put((step, self._make(step), None))
            except BaseException as error:  # raised again in the loop
                self._made.put((step, None, error))
                return
            step += 1
