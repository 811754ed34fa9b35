"""Answers as server-sent events while they are written.

Each step's news become bytes at once, when the event loop hears of them, and go straight to the connection (`server`
offers a way past the layers that is as correct as they are, for a third of their time). While a client does not read,
they are pending, until there are too many and it is given up. The only other work per token is to escape its text: the
rest of an event is the same for all events of an answer, and is made once.

An error before the first token is an ordinary HTTP error; a later one is an event of its own.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from weft.generate.job import Job, News
from weft.serve.answers import JobListener, Usage, ended_badly
from weft.serve.disconnect import DIRECT_WRITE, ClientGone, unless_gone, wait_until_gone
from weft.serve.errors import HTTPProblem
from weft.serve.generation import observe, prepare_jobs, submit_jobs, writing_of
from weft.serve.limits import ServiceLimits
from weft.serve.served import ServedModel

_DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # or nginx would collect the events


class EventFormat(Protocol):
    """The events of one route: OpenAI's completions or chat."""

    def opening(self, number: int, job: Job) -> bytes:
        """Events before the first news of an answer; may be empty."""

    def event(self, number: int, news: News) -> bytes:
        """Events for news; empty if there is nothing to tell."""

    def closing(self, usage: Usage) -> bytes:
        """Events after the last answer, before [DONE]."""


class StreamedAnswers(JobListener):
    def __init__(
        self, jobs: Sequence[Job], events: EventFormat, limits: ServiceLimits, cancel: Callable[[], None]
    ) -> None:
        """`cancel` ends the jobs."""
        super().__init__(jobs)
        self.events, self.limits, self.cancel = events, limits, cancel
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        self.last_sent = time.monotonic()
        self._is_open = [False] * self.count
        self.write: Callable[[bytes], bool] | None = None  # straight to the connection; False if it cannot take more
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._waiter: asyncio.Future[None] | None = None

    def hear(self, job: Job, news: Sequence[News]) -> None:
        if self.is_over:
            return
        if self.first_token is None:
            self.first_token = time.monotonic()
        self.count_news(news)
        if problem := ended_badly(job, news):
            self.fail(problem)
            return
        for one in news:
            number = self.number(job, one)
            if not self._is_open[number]:
                self._is_open[number] = True
                self._add(self.events.opening(number, job))
            self._add(self.events.event(number, one))
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.unfinished:
            self._add(self.events.closing(self.usage) + _DONE)
            self.is_over = True
        elif self._pending_bytes > self.limits.pending_bytes:
            self.cancel()
            self.fail(HTTPProblem(408, "The client did not read the stream, so it was stopped."))
        if self.write is not None and self._pending and self.write(b"".join(self._pending)):
            self._sent()
        self.wake()

    def fail(self, problem: HTTPProblem) -> None:
        if not self.begun.done():
            self.begun.set_exception(problem)
        elif not self.is_over:
            self.cancel()
            self._add(b"data: " + problem.json() + b"\n\n")
        self.is_over = True
        self.wake()

    def _add(self, data: bytes) -> None:
        if data:
            self._pending.append(data)
            self._pending_bytes += len(data)

    def ping(self) -> None:
        if not self._pending:
            self._add(_PING)
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._pending or self.is_over):
            self._waiter.set_result(None)

    async def next_bytes(self) -> bytes:
        """What is pending, as soon as there is any; empty at the end."""
        if not self._pending and not self.is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        data = b"".join(self._pending)
        self._sent()
        return data

    def _sent(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0
        self.last_sent = time.monotonic()


class EventStream(Response):
    """Sends what a `StreamedAnswers` hears, until it is over or the client leaves."""

    def __init__(self, answers: StreamedAnswers, finished: Callable[[], None]) -> None:
        """`finished` is called if all answers were sent."""
        super().__init__(headers=_HEADERS, media_type="text/event-stream")
        del self.headers["content-length"]
        self.answers, self.finished, self.is_gone = answers, finished, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        gone = loop.create_task(wait_until_gone(receive))
        gone.add_done_callback(lambda done: None if done.cancelled() else self._leave())
        timer = _Pings(self.answers, loop)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while data := await self.answers.next_bytes():
                self.answers.write = None  # or later events could overtake these
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self.answers.write = scope.get(DIRECT_WRITE)
            if self.is_gone:
                raise ClientGone
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            if not self.answers.unfinished:
                self.finished()
        finally:
            timer.cancel()
            gone.cancel()
            self.answers.cancel()

    def _leave(self) -> None:
        self.is_gone = self.answers.is_over = True
        self.answers.cancel()
        self.answers.wake()


class _Pings:
    """One timer for a whole stream, which looks how long the last bytes are ago."""

    def __init__(self, answers: StreamedAnswers, loop: asyncio.AbstractEventLoop) -> None:
        self.answers, self.loop, self.every = answers, loop, answers.limits.ping_seconds
        self._timer = loop.call_later(self.every, self._look)

    def _look(self) -> None:
        silence = time.monotonic() - self.answers.last_sent
        if silence >= self.every:
            self.answers.ping()
            silence = 0.0
        self._timer = self.loop.call_later(self.every - silence, self._look)

    def cancel(self) -> None:
        self._timer.cancel()


async def write_stream(
    request: Request,
    served: ServedModel,
    make_jobs: Callable[[], Sequence[Job]],
    make_events: Callable[[Sequence[Job]], EventFormat],
) -> Response:
    """The events of all jobs. Returns when the first token is there, so that an earlier error has its own status."""
    jobs, queue = await prepare_jobs(request, served, make_jobs), writing_of(served)
    limits = request.app.state.service.limits
    answers = StreamedAnswers(jobs, make_events(jobs), limits, lambda: queue.cancel(jobs))
    submit_jobs(request, queue, jobs, answers)
    try:
        await unless_gone(request, answers.begun)
    except BaseException:
        queue.cancel(jobs)
        raise
    return EventStream(answers, lambda: observe(request, served, answers))
