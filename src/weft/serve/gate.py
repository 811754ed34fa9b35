"""The outermost layers: every request gets an id and is counted, every error becomes an answer of OpenAI's shape."""

import re
import secrets
import sys
import time
import traceback

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.progress import say
from weft.serve.disconnect import ClientGone
from weft.serve.errors import HTTPProblem, Overloaded, problem_of
from weft.serve.served import Service

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_CLIENT_GONE = 499  # nginx's status for it, in metrics only
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class RequestGate:
    def __init__(self, app: ASGIApp, service: Service, paths: dict[object, str], *, logs: bool = False) -> None:
        """`paths`: the path of each endpoint, for metrics. `logs`: a line per request, without texts."""
        self.app, self.service, self.paths, self.logs = app, service, paths, logs
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = scope["weft.started"] = time.monotonic()
        request_id = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"req-{secrets.token_hex(12)}".encode()
        scope["weft.request_id"] = request_id.decode()
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_own_headers(scope, request_id)]
            await send(message)

        self.running += 1
        self.service.metrics.running.inc()
        try:
            if self.running > self.service.limits.requests:
                await _too_many(self.service.limits.requests).response()(scope, receive, send_named)
            else:
                await self.app(scope, receive, send_named)
        except ClientGone:
            status = _CLIENT_GONE
        finally:
            self.running -= 1
            self.service.metrics.running.dec()
            self._count(scope, status, time.monotonic() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = self.paths.get(scope.get("endpoint"), "none")
        self.service.metrics.http.labels(method, path, str(status)).inc()
        if self.logs:
            say(f"{method} {path} {status} {seconds:.3f} s {scope['weft.request_id']}")


def _own_headers(scope: Scope, request_id: bytes) -> list[tuple[bytes, bytes]]:
    found = [(b"x-request-id", request_id), (b"x-content-type-options", b"nosniff")]
    if ignored := scope.get("weft.ignored"):
        found.append((b"x-weft-ignored", ignored.encode("ascii", "replace")))
    return found


def _too_many(limit: int) -> HTTPProblem:
    return Overloaded(f"{limit} requests are being answered already. Try again later.")


class ErrorAnswers:
    """Answers for the errors of the layers inside. If an answer has begun, only its connection can be closed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        except ClientGone:
            raise
        except ClientDisconnect:  # before its body was complete
            raise ClientGone from None
        except Exception as error:
            problem = _problem(error, scope["weft.request_id"])
            if has_begun:
                raise
            await problem.response()(scope, receive, send)


def _problem(error: Exception, request_id: str) -> HTTPProblem:
    if isinstance(error, HTTPException):  # of the router
        message = {404: "There is no such route here; / lists all.", 405: "This route does not take this method."}
        return HTTPProblem(
            error.status_code, message.get(error.status_code, error.detail), headers=dict(error.headers or {})
        )
    problem = problem_of(error)
    if problem.status == 500:
        place = traceback.extract_tb(sys.exc_info()[2])[-1]
        say(f"weft: {request_id}: {type(error).__name__} in {place.name} ({place.filename}:{place.lineno})")
    return problem
