"""POST /v1/completions: prompts as texts or token ids, continued as OpenAI's and vLLM's clients expect."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import InputError
from weft.generate.job import Job
from weft.serve.body import read_body
from weft.serve.completion_formats import AnswerHead, CompletionDetails, CompletionEvents, completion_json
from weft.serve.errors import HTTPProblem
from weft.serve.generation import check_tokens, write_whole, writing_of
from weft.serve.limits import ServiceLimits
from weft.serve.openapi import RouteEntry
from weft.serve.served import ServedModel, Service
from weft.serve.settings import TokenId, WritingRequest
from weft.serve.stream import write_stream

_DEFAULT_TOKENS = 16  # OpenAI's
_MOST_LOG_PROBS = 5


class CompletionRequest(WritingRequest):
    prompt: str | list[TokenId] | list[str | list[TokenId]] | None = Field(
        None, description="a text, a list of texts, token ids, or a list of lists of token ids"
    )
    max_tokens: int | None = Field(None, ge=0, le=2**20, description=f"new tokens; default: {_DEFAULT_TOKENS}")
    echo: bool | None = Field(None, description="repeat the prompt before the answer")
    logprobs: int | None = Field(None, ge=0, le=_MOST_LOG_PROBS, description="most probable tokens at each place")
    best_of: int | None = Field(None, ge=1)
    suffix: str | None = None

    @field_validator("suffix")
    @classmethod
    def _refuse_suffix(cls, suffix: str | None) -> str | None:
        if suffix:
            raise ValueError("filling in before a suffix is not supported; put everything into the prompt")
        return suffix

    @property
    def prompts(self) -> list[str | list[int]]:
        given = self.prompt
        if given is None or isinstance(given, str):
            return [given or ""]
        if not given:
            raise HTTPProblem(400, "prompt: an empty list is no prompt.", param="prompt")
        if all(isinstance(item, int) for item in given):
            return [given]  # type: ignore[list-item]
        return given  # type: ignore[return-value]

    @property
    def new_tokens(self) -> int:
        return _DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens


async def completions(request: Request) -> Response:
    body = await read_body(request, CompletionRequest)
    service: Service = request.app.state.service
    served = service.pick(body.model)
    prompts = body.prompts
    body.check_limits(len(prompts), service.limits)
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise HTTPProblem(400, "best_of other than n is not supported: all answers are returned.", param="best_of")
    if body.echo and writing_of(served).writer.reader.has_source:
        raise HTTPProblem(400, "echo goes with models that continue a prompt; this one has an encoder.", param="echo")
    make_jobs, head = _jobs(body, served, service.limits), AnswerHead.new(served.name, "text_completion", "cmpl")
    if body.stream:
        return await write_stream(
            request, served, make_jobs, lambda jobs: CompletionEvents(head, jobs, _details(body, served, jobs))
        )
    whole = await write_whole(request, served, make_jobs)
    details = _details(body, served, whole.jobs)
    if body.logprobs is None:
        content = completion_json(head, whole, details)
    else:  # thousands of tokens, perhaps
        content = await service.off_loop(completion_json, head, whole, details)
    return Response(content, media_type="application/json")


def _jobs(body: CompletionRequest, served: ServedModel, limits: ServiceLimits) -> Callable[[], list[Job]]:
    writer = writing_of(served).writer

    def make() -> list[Job]:
        settings: dict[str, Any] = body.generation_settings(writer.reader.start_end.end_ids)
        if body.new_tokens:
            settings["max_new_tokens"] = body.new_tokens
        elif not body.echo:
            raise InputError("max_tokens: 0 goes with echo, to score a prompt.")
        settings |= {"reads_only": not body.new_tokens, "streams": bool(body.stream)}
        if body.logprobs is not None:
            served.token_texts.prepare()
            settings |= {"log_probs": True, "top_log_probs": body.logprobs, "prompt_log_probs": bool(body.echo)}
        jobs = [writer.job(prompt, **settings) for prompt in body.prompts]
        check_tokens(jobs, body.new_tokens, limits)
        return jobs

    return make


def _details(body: CompletionRequest, served: ServedModel, jobs: Sequence[Job]) -> CompletionDetails:
    echoes = None
    if body.echo:
        echoes = [
            prompt if isinstance(prompt, str) else served.text_of(job.prompt_ids)
            for prompt, job in zip(body.prompts, jobs, strict=True)
        ]
    return CompletionDetails(
        served.token_texts, body.logprobs is not None, bool(body.return_token_ids), echoes, body.includes_usage
    )


def completion_routes() -> list[RouteEntry]:
    return [
        RouteEntry(
            "/v1/completions",
            "POST",
            completions,
            "Continue prompts",
            CompletionRequest,
            "A text_completion, or its events (text/event-stream) if stream is true.",
            example={
                "id": "cmpl-…",
                "object": "text_completion",
                "created": 1790000000,
                "model": "story",
                "choices": [{"index": 0, "text": " there was a king", "logprobs": None, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
            },
            tag="OpenAI",
        )
    ]
