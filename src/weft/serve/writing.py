"""The queue of a model that writes: jobs go to the engine, and each step's news to the requests that wait for them.

The compute thread calls `step`. All news of a step cross to the event loop in one `call_soon_threadsafe`; everything
else here runs on the event loop.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from weft.generate.engine import GenerationEngine
from weft.generate.job import Job, News
from weft.generate.writer import Writer
from weft.serve.errors import HTTPProblem, Overloaded, problem_of
from weft.serve.histogram import WeightedHistogram

_LONGEST_WAIT = 60  # seconds that a client is told to wait at most
_RECENT = 64  # finished jobs that the rate is measured over
# Between two deliveries to a stream, but for its first token and its end: each wakes the event loop and a client, which
# take the cores from the next step.
DELIVERY_SECONDS = 0.05
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)


class Listener(Protocol):
    """A request that waits for jobs. Called on the event loop."""

    def hear(self, job: Job, news: Sequence[News]) -> None: ...

    def fail(self, problem: HTTPProblem) -> None: ...


@dataclass(slots=True)
class _OpenJob:
    job: Job  # kept, so that its identity stays its own
    listener: Listener
    unfinished: int  # answers


class WritingQueue:
    def __init__(self, writer: Writer, engine: GenerationEngine, rows: int, most_waiting: int) -> None:
        """`rows`: answers that the engine writes at a time. `most_waiting`: jobs beyond these."""
        self.writer, self.engine, self.rows, self.most_waiting = writer, engine, rows, most_waiting
        self.token_seconds = WeightedHistogram(TOKEN_SECONDS)  # between two tokens of an answer
        self.loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[int, _OpenJob] = {}  # by the job's identity
        self._preparing = 0  # requests that are admitted and being tokenized
        self._finished: deque[float] = deque(maxlen=_RECENT)  # when the last jobs ended
        self._is_full = False  # the engine could not start all jobs in its last step
        self._last_tokens: float | None = None  # when they were generated; None: the engine had nothing to do
        self._generated = 0  # tokens so far

    # On the event loop

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Around the preparation of a request's jobs. Raises Overloaded if the queue is full."""
        waiting = self.waiting
        # Jobs that the next step will start do not wait, unless the last step has left some for want of memory.
        free = 0 if self._is_full else max(0, self.rows - self.engine.load.running)
        if waiting >= self.most_waiting + free:
            raise Overloaded(
                f"{waiting} requests are waiting, and the queue has room for {self.most_waiting}. Try again later.",
                self.seconds_to_wait(waiting),
            )
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    @property
    def waiting(self) -> int:
        return self.engine.load.waiting + self._preparing

    @property
    def open_jobs(self) -> int:
        return len(self._open)

    def seconds_to_wait(self, waiting: int) -> int:
        """How long half of the queue will take, at the rate of the jobs that ended last."""
        if len(self._finished) < 2:
            return 1
        rate = (len(self._finished) - 1) / max(time.monotonic() - self._finished[0], 1e-3)
        return max(1, min(_LONGEST_WAIT, math.ceil(waiting / 2 / rate)))

    def submit(self, jobs: Sequence[Job], listener: Listener) -> None:
        """Raises InputError if a job can never fit the memory; then none of them runs."""
        try:
            for job in jobs:
                self._open[id(job)] = _OpenJob(job, listener, job.n)
                self.engine.submit(job)
        except BaseException:
            self.cancel(jobs)
            raise

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Their listener hears nothing more. Jobs that are finished are left alone."""
        for job in jobs:
            if self._open.pop(id(job), None) is not None:
                self.engine.cancel(job)

    def _deliver(self, news: list[tuple[Job, list[News]]]) -> None:
        for job, items in news:
            found = self._open.get(id(job))
            if found is None:  # cancelled
                continue
            # Not job.is_finished: the engine may be a step ahead of what is delivered here.
            found.unfinished -= sum(one.finish is not None for one in items)
            if found.unfinished <= 0:
                del self._open[id(job)]
                self._finished.append(time.monotonic())
            try:
                found.listener.hear(job, items)
            except Exception as error:  # one request's trouble is not that of the others
                self._open.pop(id(job), None)
                self.engine.cancel(job)
                found.listener.fail(problem_of(error))

    def _fail(self, problem: HTTPProblem) -> None:
        listeners = {id(found.listener): found.listener for found in self._open.values()}
        self._open.clear()
        for listener in listeners.values():
            listener.fail(problem)

    # On the compute thread

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    def step(self) -> None:
        news = self.engine.step()
        load, now = self.engine.load, time.monotonic()
        self._is_full = load.waiting > 0
        if tokens := load.generated_tokens - self._generated:
            if self._last_tokens is not None:
                self.token_seconds.add(now - self._last_tokens, tokens)
            self._last_tokens, self._generated = now, load.generated_tokens
        if news:
            self._call(self._deliver, news)
        if not self.engine.has_work:
            self._last_tokens = None

    def abandon(self, problem: HTTPProblem) -> None:
        self._call(self._fail, problem)

    def _call(self, function: Callable[[Any], None], given: Any) -> None:
        try:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(function, given)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            pass
