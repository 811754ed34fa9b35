"""POST /v1/chat/completions: a conversation, framed by the model's chat template or as the model was tuned to reply."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import InputError
from weft.generate.chat_writer import DEFAULT_CHAT_TOKENS, rendered_ids, turns_of
from weft.generate.framing import Turn
from weft.generate.job import Job
from weft.serve.body import RequestBody, read_body
from weft.serve.chat_formats import ChatEvents, chat_json
from weft.serve.completion_formats import AnswerHead, CompletionDetails
from weft.serve.errors import HTTPProblem
from weft.serve.generation import check_tokens, write_whole, writing_of
from weft.serve.limits import ServiceLimits
from weft.serve.openapi import RouteEntry
from weft.serve.served import ServedModel, Service
from weft.serve.settings import MOST_LOG_PROBS, WritingRequest
from weft.serve.stream import write_stream

_MOST_MESSAGES = 2_048
Role = Literal["system", "developer", "user", "assistant", "tool"]


class ContentPart(RequestBody):
    type: str
    text: str | None = None


class ChatMessage(RequestBody):
    role: Role
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """Raises InputError for what is no text: images, sound."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise InputError(f"messages: this service reads text only, not content of type {part.type[:40]!r}.")
        return "\n".join(part.text or "" for part in self.content)


class ChatRequest(WritingRequest):
    messages: list[ChatMessage] = Field(min_length=1, max_length=_MOST_MESSAGES)
    max_completion_tokens: int | None = Field(
        None, ge=1, le=2**20, description=f"new tokens; default: {DEFAULT_CHAT_TOKENS}, or what fits"
    )
    max_tokens: int | None = Field(None, ge=1, le=2**20, description="the older name of max_completion_tokens")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOG_PROBS)
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="variables for the model's chat template")

    @model_validator(mode="after")
    def _check_chat(self) -> "ChatRequest":
        if (self.tools or self.functions) and self.tool_choice != "none":
            raise ValueError("calling tools is not supported; leave tools out")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs goes with logprobs: true")
        return self

    @property
    def new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


async def chat_completions(request: Request) -> Response:
    body = await read_body(request, ChatRequest)
    service: Service = request.app.state.service
    served = service.pick(body.model)
    writing_of(served)
    body.check_limits(1, service.limits)
    frame = _framing(body, served)
    if served.chat_template is None and any(one.role in ("system", "developer") for one in body.messages):
        request.scope["weft.ignored"] = ",".join(filter(None, (request.scope.get("weft.ignored"), "messages.system")))
    make_jobs = _jobs(body, served, service.limits, frame)
    details = CompletionDetails(
        served.token_texts, bool(body.logprobs), bool(body.return_token_ids), usage=body.includes_usage
    )
    if body.stream:
        head = AnswerHead.new(served.name, "chat.completion.chunk", "chatcmpl")
        return await write_stream(request, served, make_jobs, lambda jobs: ChatEvents(head, jobs, details))
    head = AnswerHead.new(served.name, "chat.completion", "chatcmpl")
    whole = await write_whole(request, served, make_jobs)
    content = chat_json(head, whole, details)
    return Response(content, media_type="application/json")


_Framed = tuple[str | list[int], Sequence[Turn]]  # what the model reads: a prompt and earlier turns


def _framing(body: ChatRequest, served: ServedModel) -> Callable[[], _Framed]:
    """Raises HTTPProblem (400) for a model that does not converse."""
    if served.chat_by == "template":
        return lambda: (_templated(body, served), ())
    if served.chat_by == "reply":
        return lambda: turns_of([{"role": one.role, "content": one.text} for one in body.messages])
    message = (
        f"The model {served.name} has no chat template and was not tuned to reply, so it does not converse. Use "
        "/v1/completions, or a folder with a chat_template in tokenizer_config.json."
    )
    raise HTTPProblem(400, message, param="model", code="no_chat_template")


def _templated(body: ChatRequest, served: ServedModel) -> list[int]:
    assert served.chat_template is not None
    assert served.tokenizer is not None
    messages = [{**(one.model_extra or {}), "role": one.role, "content": one.text} for one in body.messages]
    variables = {name: value for name, value in (body.chat_template_kwargs or {}).items() if name.isidentifier()}
    reserved = ("messages", "add_generation_prompt", "self")
    return rendered_ids(
        served.chat_template,
        served.tokenizer,
        messages,
        add_generation_prompt=body.add_generation_prompt,
        **{name: value for name, value in variables.items() if name not in reserved},
    )


def _jobs(
    body: ChatRequest, served: ServedModel, limits: ServiceLimits, frame: Callable[[], _Framed]
) -> Callable[[], list[Job]]:
    writer = writing_of(served).writer

    def make() -> list[Job]:
        prompt, history = frame()
        new = body.new_tokens
        if new is None:
            new = DEFAULT_CHAT_TOKENS
            if (limit := writer.reader.limit) is not None:
                new = max(1, min(new, limit - len(prompt) + 1 if isinstance(prompt, list) else limit // 2))
            new = max(new, body.min_tokens or 0)
        settings: dict[str, Any] = body.generation_settings(writer.reader.start_end.end_ids)
        settings |= {"max_new_tokens": new, "streams": bool(body.stream)}
        if body.logprobs:
            served.token_texts.prepare()
            settings |= {"log_probs": True, "top_log_probs": body.top_logprobs or 0}
        jobs = [writer.job(prompt, history=history, **settings)]
        check_tokens(jobs, new, limits)
        return jobs

    return make


def chat_routes() -> list[RouteEntry]:
    return [
        RouteEntry(
            "/v1/chat/completions",
            "POST",
            chat_completions,
            "Reply in a conversation",
            ChatRequest,
            "A chat.completion, or its events (text/event-stream) if stream is true.",
            example={
                "id": "chatcmpl-…",
                "object": "chat.completion",
                "created": 1790000000,
                "model": "talk",
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
                ],
                "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
            },
            tag="OpenAI",
        )
    ]
