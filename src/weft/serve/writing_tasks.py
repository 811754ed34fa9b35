"""The tasks that write, in Hugging Face's shapes: translations, summaries, replies, and text that goes on."""

from collections.abc import Awaitable, Callable
from statistics import fmean
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.generate.job import Job
from weft.serve.answers import WrittenAnswer
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
        n, has_scores = wanted.num_return_sequences or 1, wanted.num_return_sequences is not None
        rewriter, queue = served.reading.readers.rewriter(task), writing_of(served)
        truncated = 0

        def make_jobs() -> list[Job]:
            nonlocal truncated
            prompts, truncated = rewriter.prompts(body.texts, truncate=wanted.truncates)
            settings = rewriter.settings(wanted.max_new_tokens, wanted.num_beams, n)
            return [queue.writer.job(prompt, log_probs=has_scores, **settings) for prompt in prompts]

        _check_count(request, len(body.texts) * n)
        written = await write_whole(request, served, make_jobs)

        def answer() -> list[Any]:
            shown = []
            for one in written.answers:
                text = {_WRITTEN[task]: rewriter.text([token.id for token in one.tokens])}
                shown.append({**text, "score": _mean_log_prob(one)} if has_scores else text)
            is_flat = n == 1 or isinstance(body.inputs, str)
            return shown if is_flat else [shown[start : start + n] for start in range(0, len(shown), n)]

        return await json_answer(request, answer, truncated=truncated)

    return rewrite


def _mean_log_prob(written: WrittenAnswer) -> float | None:
    return fmean(token.log_prob for token in written.tokens) if written.tokens else None


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
