"""Every error of the service, in the shape that OpenAI's clients read: {"error": {message, type, param, code}}."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from weft.errors import InputError, WeftError

INVALID, TOO_MANY, UNAVAILABLE = "invalid_request_error", "rate_limit_error", "service_unavailable"
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: TOO_MANY}
_TYPES |= {500: "server_error", 503: UNAVAILABLE, 504: "timeout_error"}
# What pydantic puts into the place of an error beside the names of fields: the branches of a union.
_BRANCHES = ("list[", "function-", "constrained-", "union[", "literal[", "dict[", "tagged-union", "json-or-python")
_TYPE_NAMES = frozenset(("str", "int", "float", "bool", "dict", "any", "none"))
_MOST_MESSAGE = 2_000  # characters


class HTTPProblem(Exception):
    """A request that ends with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message[:_MOST_MESSAGE], param, code
        self.type = type or _TYPES.get(status, INVALID)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def json(self) -> bytes:
        return json.dumps(self.body()).encode()

    def response(self) -> Response:
        return Response(self.json(), self.status, self.headers, "application/json")


class Overloaded(HTTPProblem):
    """The queue is full; clients wait `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        headers = {"retry-after": str(retry_after)}
        super().__init__(429, message, code="overloaded", headers=headers)


class Unavailable(HTTPProblem):
    """The compute thread is dead, or the service is being stopped."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message, code="unavailable")


def problem_of(error: BaseException) -> HTTPProblem:
    """What a client is told about an error. An unforeseen one is told without its details."""
    match error:
        case HTTPProblem():
            return error
        case ValidationError():
            return _invalid(error)
        case InputError():
            return HTTPProblem(400, str(error))
        case WeftError():  # a sentence, too, but not the client's fault
            return HTTPProblem(500, str(error))
    return HTTPProblem(500, "The service failed at this request. Its log names the error.")


def _invalid(error: ValidationError) -> HTTPProblem:
    """The first error, by the name of its field. Values are not repeated: they may be long."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    # Of the branches of a union, the one that has the right types comes first.
    found = sorted(errors, key=lambda one: one["type"].endswith("_type"))
    places = [_place(one["loc"]) for one in found]
    param, message = places[0], found[0]["msg"]
    if found[0]["type"] == "value_error":
        message = message.removeprefix("Value error, ")
    alternatives = list(dict.fromkeys(one["msg"] for one, place in zip(found, places, strict=True) if place == param))
    if len(alternatives) > 1:
        message = "; or ".join(alternatives[:4])
    return HTTPProblem(400, f"{param}: {message}." if param else f"{message}.", param=param or None)


def _place(location: tuple[int | str, ...]) -> str:
    """`messages.0.content`, without the branches of unions that pydantic tried."""
    parts = [str(part) for part in location]
    return ".".join(part for part in parts if not (part.lower().startswith(_BRANCHES) or _is_type(part)))


def _is_type(part: str) -> bool:
    """The name of a type or of a model of ours; fields are not capitalized."""
    return part in _TYPE_NAMES or part[:1].isupper()
