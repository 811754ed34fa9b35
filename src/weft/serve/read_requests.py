"""From a request to what the model read: tokenized off the event loop, queued, awaited while the client is there."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import InputError
from weft.serve.disconnect import unless_gone
from weft.serve.errors import HTTPProblem
from weft.serve.generation import started_at
from weft.serve.readers import BatchReader, PreparedInputs, Side, Suggestion, TaskReader, TextOrIds
from weft.serve.reading import ReadCall
from weft.serve.served import ServedModel, Service
from weft.tasks.example import Example, Input

MOST_INPUTS = 2048  # texts of a request
_MOST_NUMBERS = 2**22  # of an answer with a vector per token
_TOO_LATE = "The answer took longer than the service allows."


class VectorsRead(NamedTuple):
    vectors: list[np.ndarray]
    tokens: int
    truncated: int


@dataclass(frozen=True)
class TaskRead:
    reader: TaskReader
    examples: list[Example]
    prepared: PreparedInputs
    pieces: list[Any]  # a result per input

    def answers(self) -> list[Any]:
        """One answer per example; not to be asked on the event loop, for long texts take a while."""
        return self.reader.answers(self.examples, self.prepared.inputs, self.pieces)


def admitted_model(request: Request, name: str | None) -> ServedModel:
    """The model that the body names, or the query (`?model=`), or the first one.

    Raises Unavailable if the service is stopping. Later it is not asked again: what was admitted is finished.
    """
    service: Service = request.app.state.service
    service.check_open()
    return service.pick(request.query_params.get("model") if name is None else name)


async def read_vectors(
    request: Request,
    served: ServedModel,
    given: Sequence[TextOrIds],
    *,
    truncate: bool = False,
    side: Side = "right",
    every_token: bool = False,
) -> VectorsRead:
    """A vector per input; with `every_token`, a vector per token."""
    readers = served.reading.readers
    reader = readers.token_vectors if every_token else readers.vectors
    prepared = await _prepare(request, served, lambda: reader.inputs(given, truncate=truncate, side=side))
    numbers = prepared.tokens * reader.network.width
    if every_token and numbers > _MOST_NUMBERS:
        raise InputError(f"The answer would have {numbers:,} numbers; the limit is {_MOST_NUMBERS:,}. Send less text.")
    vectors = await read_inputs(request, served, reader, prepared)
    return VectorsRead(vectors, prepared.tokens, prepared.truncated)


async def read_task(
    request: Request,
    served: ServedModel,
    task: str,
    rows: Sequence[dict[str, Any]],
    *,
    truncate: bool = False,
    raw: bool = False,
) -> TaskRead:
    """The task's answers to rows of texts by role. With `raw`, the scores before softmax or sigmoid."""
    readers = served.reading.readers
    reader = readers.logits(task) if raw else readers.task(task)
    examples: list[Example] = []

    def prepare() -> PreparedInputs:
        examples.extend(reader.examples(rows))
        return reader.inputs(examples, truncate=truncate)

    prepared = await _prepare(request, served, prepare)
    pieces = await read_inputs(request, served, reader, prepared)
    return TaskRead(reader, examples, prepared, pieces)


async def read_suggestions(
    request: Request, served: ServedModel, texts: Sequence[str], top: int, among: Sequence[str] | None
) -> tuple[list[Input], list[list[list[Suggestion]]]]:
    """What was read of each text, and the suggestions for each of its masks."""
    reader = served.reading.readers.masks
    prepared = await _prepare(request, served, lambda: reader.inputs(texts, top, among))
    return prepared.inputs, await read_inputs(request, served, reader, prepared)


async def read_inputs(
    request: Request, served: ServedModel, reader: BatchReader, prepared: PreparedInputs
) -> list[Any]:
    """One result per input. Raises ClientGone, Overloaded, or a problem with status 504 after the time allowed."""
    service: Service = request.app.state.service
    if prepared.tokens > service.limits.tokens:
        raise InputError(f"The inputs have {prepared.tokens:,} tokens; a request may have {service.limits.tokens:,}.")
    future = served.reading.submit(ReadCall(reader, prepared.inputs))
    service.worker.wake()
    left = started_at(request) + service.limits.seconds - time.monotonic()
    try:
        async with asyncio.timeout(left):
            return await unless_gone(request, asyncio.wrap_future(future))
    except TimeoutError:
        raise HTTPProblem(504, _TOO_LATE, headers={"x-should-retry": "false"}) from None


async def _prepare(request: Request, served: ServedModel, prepare: Callable[[], PreparedInputs]) -> PreparedInputs:
    service: Service = request.app.state.service
    served.reading.check_room()
    return await service.off_loop(prepare)


async def json_answer(request: Request, make: Callable[[], Any], *, truncated: int = 0, tokens: int = 0) -> Response:
    """`make` builds the JSON, on another thread: thousands of numbers take a while."""
    service: Service = request.app.state.service
    content = await service.off_loop(lambda: json.dumps(make(), ensure_ascii=False, allow_nan=False).encode())
    headers = {"x-weft-truncated": str(truncated)} if truncated else {}
    if tokens:
        headers["x-compute-tokens"] = str(tokens)
    return Response(content, headers=headers, media_type="application/json")
