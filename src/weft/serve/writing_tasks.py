"""The tasks that write, in Hugging Face's shapes: translations, summaries, replies, and text that goes on."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.generate.job import Job
from weft.serve.errors import HTTPProblem
from weft.serve.generation import write_whole, writing_of
from weft.serve.read_requests import json_answer
from weft.serve.served import ServedModel
from weft.serve.task_formats import GenerateParameters, GenerateRequest, RewriteParameters, RewriteRequest

_WRITTEN = {"translate": "translation_text", "summarize": "summary_text", "reply": "generated_text"}


def rewritten(task: str) -> Callable[[Request, ServedModel, Any], Awaitable[Response]]:
    """The answers of a task that writes: translate, summarize or reply."""

    async def rewrite(request: Request, served: ServedModel, body: RewriteRequest) -> Response:
        wanted = body.parameters or RewriteParameters()
        rewriter, queue = served.reading.readers.rewriter(task), writing_of(served)
        truncated = 0

        def make_jobs() -> list[Job]:
            nonlocal truncated
            prompts, truncated = rewriter.prompts(body.texts, truncate=wanted.truncates)
            settings = rewriter.settings(wanted.max_new_tokens)
            return [queue.writer.job(prompt, **settings) for prompt in prompts]

        _check_count(request, len(body.texts))
        written = await write_whole(request, served, make_jobs)
        texts = [rewriter.text([token.id for token in one.tokens]) for one in written.answers]
        return await json_answer(request, lambda: [{_WRITTEN[task]: text} for text in texts], truncated=truncated)

    return rewrite


async def generate(request: Request, served: ServedModel, body: GenerateRequest) -> Response:
    wanted, queue = body.parameters or GenerateParameters(), writing_of(served)
    n = wanted.num_return_sequences
    _check_count(request, len(body.texts) * n)
    settings = wanted.settings()
    written = await write_whole(request, served, lambda: [queue.writer.job(text, **settings) for text in body.texts])
    texts = [
        {"generated_text": (body.texts[number // n] if wanted.return_full_text else "") + one.text}
        for number, one in enumerate(written.answers)
    ]
    rows = [texts[start : start + n] for start in range(0, len(texts), n)]
    return await json_answer(request, lambda: body.one_or_all(rows))


def _check_count(request: Request, count: int) -> None:
    most = request.app.state.service.limits.answers
    if count > most:
        raise HTTPProblem(400, f"The request asks for {count} answers; the limit is {most}.", param="inputs")
