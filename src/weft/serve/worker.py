"""The thread that computes for all models in turns, so that the cores are never asked twice at the same time.

A `Work` is a queue of one model: it has work or not, and does one bounded piece at a time. Results go to the event loop
from inside `step`, with one `call_soon_threadsafe` per step. An exception that escapes from `step` is a defect: the
thread ends, `/health` and `/ready` say so, and everything that waits is answered with 503.
"""

import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Protocol

from weft.progress import say
from weft.serve.errors import HTTPProblem, Unavailable


class Work(Protocol):
    @property
    def has_work(self) -> bool: ...

    def step(self) -> None:
        """One bounded piece of work. A bad request must not raise here."""

    def abandon(self, problem: HTTPProblem) -> None:
        """Answer everything that waits with this problem: no step will follow. Called on any thread."""


class Worker(threading.Thread):
    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__(name="weft-compute", daemon=True)
        self.works = tuple(works)
        self._condition = threading.Condition()
        self._is_closed = False
        self._is_awake = False
        self.error: BaseException | None = None

    @property
    def is_healthy(self) -> bool:
        return self.is_alive() and self.error is None and not self._is_closed

    def wake(self) -> None:
        """To be called after work was added. Thread-safe."""
        if self._is_awake:  # it looks for work once more before it sleeps
            return
        with self._condition:
            self._is_awake = True
            self._condition.notify()

    def close(self) -> None:
        """End the thread after its current step. What still waits is answered with 503."""
        with self._condition:
            self._is_closed = self._is_awake = True
            self._condition.notify()

    def run(self) -> None:
        try:
            while not self._is_closed:
                self._sleep()
                self._work()
        except BaseException as error:
            self.error = error
            say(f"weft: the compute thread ended: {type(error).__name__}: {error}")
            traceback.print_exc(file=sys.stderr)
        finally:
            problem = Unavailable("The service is stopping." if self.error is None else "The compute thread is dead.")
            for work in self.works:
                work.abandon(problem)

    def _sleep(self) -> None:
        with self._condition:
            while not self._is_awake:
                self._condition.wait()

    def _work(self) -> None:
        """One step of each work in turn, until none has any."""
        while not self._is_closed:
            # Cleared before looking: whoever adds work after the look sets it again.
            self._is_awake = False
            busy = [work for work in self.works if work.has_work]
            if not busy:
                return
            self._is_awake = True
            for work in busy:
                work.step()
