"""Routes about the service itself: models, health, readiness, metrics, the OpenAPI document."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from weft.serve.metrics import CONTENT_TYPE
from weft.serve.openapi import RouteEntry
from weft.serve.served import ServedModel, Service
from weft.version import VERSION


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
    }


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


async def index(request: Request) -> Response:
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
        RouteEntry("/", "GET", index, "What is here", None, "Models and routes.", tag=tag),
    ]
