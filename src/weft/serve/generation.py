"""From a request to its answers: admitted, tokenized off the event loop, awaited while the client is there."""

import time
from collections.abc import Callable, Sequence

from starlette.requests import Request

from weft.generate.job import Job
from weft.serve.answers import JobListener, WholeAnswers
from weft.serve.disconnect import unless_gone
from weft.serve.errors import HTTPProblem
from weft.serve.limits import ServiceLimits
from weft.serve.served import ServedModel, Service
from weft.serve.writing import Listener, WritingQueue


def started_at(request: Request) -> float:
    """When the request came (time.monotonic)."""
    return float(request.scope.get("weft.started") or time.monotonic())


def writing_of(served: ServedModel) -> WritingQueue:
    """Raises HTTPProblem (400) if the model does not write."""
    if served.writing is None:
        message = f"The model {served.name} reads and does not write. Try /v1/embeddings or /v1/tasks."
        raise HTTPProblem(400, message, param="model", code="model_does_not_write")
    return served.writing


async def prepare_jobs(request: Request, served: ServedModel, make_jobs: Callable[[], Sequence[Job]]) -> Sequence[Job]:
    """`make_jobs` tokenizes and checks; it runs on another thread. Raises Overloaded before that if too many wait."""
    service: Service = request.app.state.service
    service.check_open()
    with writing_of(served).admitted():
        jobs = await service.off_loop(make_jobs)
    for job in jobs:
        job.deadline = started_at(request) + service.limits.seconds
    return jobs


async def write_whole(request: Request, served: ServedModel, make_jobs: Callable[[], Sequence[Job]]) -> WholeAnswers:
    """The finished answers of all jobs. If the client leaves, the jobs are cancelled and ClientGone is raised."""
    jobs, queue = await prepare_jobs(request, served, make_jobs), writing_of(served)
    answers = WholeAnswers(jobs)
    submit_jobs(request, queue, jobs, answers)
    try:
        await unless_gone(request, answers.done)
    finally:
        queue.cancel(jobs)  # those that are not finished
    observe(request, served, answers)
    return answers


def submit_jobs(request: Request, queue: WritingQueue, jobs: Sequence[Job], listener: Listener) -> None:
    service: Service = request.app.state.service
    service.check_open()  # once more: the compute thread may have died since
    queue.submit(jobs, listener)
    service.worker.wake()


def check_tokens(jobs: Sequence[Job], new_tokens: int, limits: ServiceLimits) -> None:
    """Raises HTTPProblem (400) if a request asks for more tokens than one request may."""
    tokens = sum(len(job.prompt_ids) + job.n * new_tokens for job in jobs)
    if tokens > limits.tokens:
        message = f"The prompts and new tokens are {tokens:,} tokens together; the limit is {limits.tokens:,}."
        raise HTTPProblem(400, message, param="max_tokens")


def observe(request: Request, served: ServedModel, answers: JobListener) -> None:
    """The metrics of a request whose answers are finished."""
    metrics, began = request.app.state.service.metrics, started_at(request)
    if answers.first_token is not None:
        metrics.first_token.labels(served.name).observe(answers.first_token - began)
    metrics.whole.labels(served.name).observe(time.monotonic() - began)
    for finish in answers.finishes:
        metrics.success.labels(served.name, finish).inc()
