"""The OpenAPI document, from the same table of routes that the application answers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weft.version import VERSION

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class RouteEntry:
    """One route. `response` describes the answer: a sentence, or the model of its JSON; `example` shows one."""

    path: str
    method: str
    endpoint: Endpoint
    summary: str
    request: type[BaseModel] | None = None
    response: type[BaseModel] | str = "The answer."
    example: Any = None
    tag: str = "weft"

    def route(self) -> Route:
        return Route(self.path, self.endpoint, methods=[self.method], name=f"{self.method} {self.path}")


def openapi_of(entries: Sequence[RouteEntry], *, needs_key: bool) -> dict[str, Any]:
    kinds = {entry.request for entry in entries if entry.request}
    kinds |= {entry.response for entry in entries if not isinstance(entry.response, str)}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for entry in entries:
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry)
    components: dict[str, Any] = {"schemas": {**schemas.get("$defs", {}), "Error": _ERROR}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "weft", "version": VERSION, "description": "Language models, served by weft."},
        "paths": paths,
        "components": components,
    }
    if needs_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _operation(entry: RouteEntry) -> dict[str, Any]:
    description = entry.response if isinstance(entry.response, str) else entry.summary
    answer: dict[str, Any] = {"description": description}
    if not isinstance(entry.response, str):
        answer["content"] = {"application/json": {"schema": _reference(entry.response)}}
    elif entry.example is not None:
        answer["content"] = {"application/json": {"example": entry.example}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    name = re.sub(r"\W+", "_", f"{entry.method.lower()}{entry.path}").strip("_")
    operation: dict[str, Any] = {
        "summary": entry.summary,
        "operationId": name,
        "tags": [entry.tag],
        "responses": {"200": answer, "default": {"description": "An error.", "content": error}},
    }
    if entry.request is not None:
        content = {"application/json": {"schema": _reference(entry.request)}}
        operation["requestBody"] = {"required": True, "content": content}
    if named := re.findall(r"{(\w+)}", entry.path):
        operation["parameters"] = [
            {"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in named
        ]
    return operation


def _reference(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
