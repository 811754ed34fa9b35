"""What the jobs of one request have written, as it arrives from the compute thread."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.generate.job import Finish, Job, News, TokenInfo
from weft.serve.errors import HTTPProblem, Unavailable, problem_of

REASONS: dict[Finish, str] = {"end": "stop", "stop": "stop", "length": "length"}  # as OpenAI calls them
_NOT_RETRIED = {"x-should-retry": "false"}  # a client's library would otherwise ask for the same again


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def as_json(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class JobListener:
    """The jobs of a request, whose answers are numbered: first all of the first job, then those of the second …"""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.first_token: float | None = None  # when it came; only streams know
        self.completion_tokens = 0
        self.finishes: list[Finish] = []
        self.count = 0  # answers of all jobs
        self._first: dict[int, int] = {}  # number of a job's first answer
        for job in jobs:
            self._first[id(job)] = self.count
            self.count += job.n
        self.unfinished = self.count

    def number(self, job: Job, news: News) -> int:
        return self._first[id(job)] + news.index

    def count_news(self, news: Sequence[News]) -> None:
        for one in news:
            self.completion_tokens += len(one.tokens)
            if one.finish is not None:
                self.unfinished -= 1
                self.finishes.append(one.finish)

    @property
    def usage(self) -> Usage:
        return Usage(
            sum(len(job.prompt_ids) for job in self.jobs),
            self.completion_tokens,
            sum(job.cached_tokens for job in self.jobs),
        )


@dataclass(slots=True)
class WrittenAnswer:
    job: Job
    pieces: list[str] = field(default_factory=list)
    tokens: list[TokenInfo] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def reason(self) -> str:
        assert self.finish is not None
        return REASONS[self.finish]


class WholeAnswers(JobListener):
    """Answers that are sent when all of them are finished: the request is woken once."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(jobs)
        self.answers = [WrittenAnswer(job) for job in jobs for _ in range(job.n)]
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(self, job: Job, news: Sequence[News]) -> None:
        self.count_news(news)
        for one in news:
            answer = self.answers[self.number(job, one)]
            answer.pieces.append(one.text)
            answer.tokens += one.tokens
            answer.finish = one.finish
        if not self.done.done():
            if problem := ended_badly(job, news):
                self.done.set_exception(problem)
            elif not self.unfinished:
                self.done.set_result(None)

    def fail(self, problem: HTTPProblem) -> None:
        if not self.done.done():
            self.done.set_exception(problem)


def ended_badly(job: Job, news: Sequence[News]) -> HTTPProblem | None:
    """The problem of an answer that was not finished."""
    for one in news:
        if one.finish == "deadline":
            return HTTPProblem(504, "The answer took longer than the service allows.", headers=_NOT_RETRIED)
        if one.finish == "cancelled":
            return Unavailable("The answer was stopped.") if job.error is None else problem_of(job.error)
    return None
