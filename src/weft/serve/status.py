"""Routes about the service itself: models, health, readiness, metrics, the OpenAPI document."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from weft.errors import InputError
from weft.metrics.thresholds import PLAIN_THRESHOLD
from weft.serve.metrics import CONTENT_TYPE
from weft.serve.openapi import RouteEntry
from weft.serve.served import ServedModel, Service
from weft.version import VERSION

_MOST_LABELS = 1_000
_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")  # by a folder


async def list_models(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse({"object": "list", "data": [_described(one) for one in service.models.values()]})


async def show_model(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse(_described(service.pick(request.path_params["model"])))


def _described(served: ServedModel) -> dict[str, Any]:
    model = served.model
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "weft",
        "max_model_len": model.longest,
        "family": model.family,
        "parameters": model.parameters_count,
        "task": None if model.task is None else model.task.name,
        "writes": served.writing is not None,
        **_abilities(served),
    }


def _abilities(served: ServedModel) -> dict[str, Any]:
    """What a client can offer for the model: its tasks with their labels and settings, chat, masks, vectors."""
    model, task = served.model, served.model.task
    labels, threshold = getattr(task, "labels", ()), getattr(task, "threshold", None)
    own = dict(zip(labels, threshold, strict=True)) if isinstance(threshold, tuple) else {}
    return {
        "abilities": list(served.reading.readers.abilities),
        "labels": list(labels[:_MOST_LABELS]),
        "threshold": PLAIN_THRESHOLD if own else threshold,  # of a model that gives a text several labels
        "thresholds": own,  # of each label, if they have their own
        "chat": _chat(served),
        "mask": None if served.tokenizer is None else served.tokenizer.special.get("mask"),
        "languages": list(served.languages),
        "vector_size": model.network.width,
        "compares": getattr(task, "name", None) == "similarity" or bool(model.pooling.files),  # vectors of meaning
        "defaults": _defaults(served),
        "task_settings": _task_settings(served),
    }


def _chat(served: ServedModel) -> str | None:
    try:
        return served.chat_by
    except InputError:  # a template that cannot be used
        return None


def _defaults(served: ServedModel) -> dict[str, Any]:
    """What the folder recommends for settings of generation that a request does not give."""
    given = served.model.description.generation if served.writing is not None else {}
    return {name: given[name] for name in _RECOMMENDED if isinstance(given.get(name), int | float)}


def _task_settings(served: ServedModel) -> dict[str, Any] | None:
    task = served.model.task
    return None if task is None or not task.writes else served.reading.readers.rewriter(task.name).settings()


async def health(request: Request) -> Response:
    """Whether the process can still answer: a dead compute thread never comes back."""
    service: Service = request.app.state.service
    if service.worker.error is not None:
        return JSONResponse({"status": "dead"}, 503)
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Whether new requests are admitted."""
    service: Service = request.app.state.service
    service.check_open()
    return JSONResponse({"status": "ready", "models": list(service.models)})


async def metrics_text(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


async def openapi_document(request: Request) -> Response:
    return JSONResponse(request.app.state.openapi)


async def service_index(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse(
        {
            "weft": VERSION,
            "models": list(service.models),
            "routes": [f"{one.method} {one.path}" for one in _all(request)],
        }
    )


def _all(request: Request) -> list[RouteEntry]:
    found: list[RouteEntry] = request.app.state.entries
    return found


def status_routes() -> list[RouteEntry]:
    tag = "status"
    one = {"id": "story", "object": "model", "created": 1790000000, "owned_by": "weft"}
    listed = {"object": "list", "data": [one]}
    return [
        RouteEntry("/v1/models", "GET", list_models, "The models", None, "All models.", listed, "OpenAI"),
        RouteEntry("/v1/models/{model}", "GET", show_model, "One model", None, "The model.", one, "OpenAI"),
        RouteEntry("/health", "GET", health, "Whether it is alive", None, "ok; 503 if it is dead.", tag=tag),
        RouteEntry("/ready", "GET", ready, "Whether it takes requests", None, "ready; 503 if it is not.", tag=tag),
        RouteEntry("/metrics", "GET", metrics_text, "Prometheus metrics", None, "Prometheus' text format.", tag=tag),
        RouteEntry("/openapi.json", "GET", openapi_document, "This document", None, "OpenAPI 3.1.", tag=tag),
    ]
