"""POST /v1/tasks/…: the tasks, filling masks, writing and embedding, in Hugging Face's shapes.

Each task has weft's name and, where it has one, Hugging Face's: tag is token-classification. The answers are those of
`Model.predict`, `fill`, `generate` and `embed`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.errors import suggest
from weft.serve.body import read_body
from weft.serve.errors import HTTPProblem
from weft.serve.openapi import Endpoint, RouteEntry
from weft.serve.read_requests import admitted_model
from weft.serve.reading_tasks import answers, features, fill, intents, labels, sentence_similarity, summaries, tags
from weft.serve.served import ServedModel
from weft.serve.task_formats import (
    AnswerRequest,
    ClassifyRequest,
    ExtractRequest,
    FeatureRequest,
    FillRequest,
    GenerateRequest,
    IntentRequest,
    LabelRequest,
    PairRequest,
    RewriteRequest,
    SimilarityRequest,
    TagRequest,
    TaskRequest,
)
from weft.serve.writing_tasks import generate, rewritten


@dataclass(frozen=True)
class ServedTask:
    names: tuple[str, ...]  # weft's, and Hugging Face's
    ability: str | None  # that the model must have; None: the request decides
    body: type[TaskRequest]
    answer: Callable[[Request, ServedModel, Any], Awaitable[Response]]
    example: Any

    def endpoint(self) -> Endpoint:
        async def run_task(request: Request) -> Response:
            body = await read_body(request, self.body)
            served = admitted_model(request, body.model)
            if self.ability is not None:
                served.reading.readers.check(self.ability)
            return await self.answer(request, served, body)

        return run_task


_LABELS = [[{"label": "positive", "score": 0.98}, {"label": "negative", "score": 0.02}]]
_ENTITY = {"entity_group": "PER", "score": 0.99, "word": "Anna", "start": 0, "end": 4}
_SPAN = {"answer": "Anna", "score": 0.97, "start": 8, "end": 12}
_FILLED = {"score": 0.4, "token": 1234, "token_str": "cat", "sequence": "the cat sat."}
_SLOT = {"score": 0.99, "word": "kitchen", "start": 12, "end": 19}
_INTENT = {"intent": "light", "score": 0.98, "slots": {"room": [_SLOT]}}
SERVED_TASKS = (
    ServedTask(("text-classification",), None, LabelRequest, labels, _LABELS),
    ServedTask(("classify",), "classify", ClassifyRequest, labels, _LABELS),
    ServedTask(("pair",), "pair", PairRequest, labels, _LABELS),
    ServedTask(("similarity", "sentence-similarity"), None, SimilarityRequest, sentence_similarity, [0.9, 0.1]),
    ServedTask(("tag", "token-classification"), "tag", TagRequest, tags, [_ENTITY]),
    ServedTask(("answer", "question-answering"), "answer", AnswerRequest, answers, _SPAN),
    ServedTask(("extract",), "extract", ExtractRequest, summaries, [{"summary_text": "…"}]),
    ServedTask(("intent",), "intent", IntentRequest, intents, _INTENT),
    ServedTask(("fill", "fill-mask"), "fill", FillRequest, fill, [_FILLED]),
    ServedTask(
        ("translate", "translation"), "translate", RewriteRequest, rewritten("translate"), [{"translation_text": "…"}]
    ),
    ServedTask(
        ("summarize", "summarization"), "summarize", RewriteRequest, rewritten("summarize"), [{"summary_text": "…"}]
    ),
    ServedTask(("reply",), "reply", RewriteRequest, rewritten("reply"), [{"generated_text": "…"}]),
    ServedTask(("generate", "text-generation"), "generate", GenerateRequest, generate, [{"generated_text": "…"}]),
    ServedTask(("embed", "feature-extraction"), "embed", FeatureRequest, features, [0.1, -0.2]),
)


async def unknown_task(request: Request) -> Response:
    known = [name for task in SERVED_TASKS for name in task.names]
    name = request.path_params["task"][:60]
    raise HTTPProblem(404, f"There is no task {name!r}{suggest(name, known)}. Tasks: {', '.join(known)}.")


def task_routes() -> list[RouteEntry]:
    entries = [
        RouteEntry(
            f"/v1/tasks/{name}",
            "POST",
            task.endpoint(),
            f"The task {name}, in Hugging Face's shapes",
            task.body,
            "The answer; for a list of inputs, a list of answers.",
            task.example,
            "tasks",
        )
        for task in SERVED_TASKS
        for name in task.names
    ]
    return [
        *entries,
        RouteEntry("/v1/tasks/{task}", "POST", unknown_task, "Other tasks: an error that names the tasks"),
    ]
