"""The application: the table of routes, and the layers that every request passes before it reaches one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.serve.gate import ErrorAnswers, RequestGate
from weft.serve.openapi import RouteEntry, openapi_of
from weft.serve.page_files import page_routes
from weft.serve.run_routes import run_routes
from weft.serve.run_service import RunService
from weft.serve.security import BodyLimit, HostCheck, KeyCheck, Security
from weft.serve.served import Service
from weft.serve.status import status_routes


def all_routes(*, models: bool = True, runs: bool = False) -> list[RouteEntry]:
    """Those of models, of runs, and those that are always there."""
    own = [*(run_routes() if runs else []), *status_routes(), *page_routes()]
    return [*model_routes(), *own] if models else own


def model_routes() -> list[RouteEntry]:
    from weft.serve.chat import chat_routes  # here, because they import torch
    from weft.serve.completions import completion_routes
    from weft.serve.embeddings import embedding_routes
    from weft.serve.tasks import task_routes
    from weft.serve.tei import tei_routes

    return [*completion_routes(), *chat_routes(), *embedding_routes(), *task_routes(), *tei_routes()]


class ServiceApp(Starlette):
    """Starlette's router with our layers only: its own would answer errors in another shape."""

    def __init__(
        self,
        service: Service,
        security: Security,
        entries: Sequence[RouteEntry],
        *,
        runs: RunService | None = None,
        logs: bool = False,
    ) -> None:
        super().__init__(routes=[entry.route() for entry in entries], lifespan=_lifespan)
        self.router.redirect_slashes = False
        self.state.service, self.state.entries = service, list(entries)
        self.state.runs = runs
        self.state.openapi = openapi_of(entries, needs_key=bool(security.key_hashes))
        self.security, self.logs = security, logs

    def build_middleware_stack(self) -> ASGIApp:
        service, security, router = self.state.service, self.security, self.router
        app: ASGIApp = ErrorAnswers(KeyCheck(BodyLimit(router, service.limits), security))
        if security.origins:
            app = CORSMiddleware(
                app,
                allow_origins=security.origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["x-request-id", "x-weft-ignored", "retry-after"],
            )
        paths = {entry.endpoint: entry.path for entry in self.state.entries}
        gate = RequestGate(ErrorAnswers(HostCheck(app, security)), service, paths, logs=self.logs)

        async def stack(scope: Scope, receive: Receive, send: Send) -> None:
            await (gate if scope["type"] == "http" else router)(scope, receive, send)

        return stack


def create_app(
    service: Service, security: Security | None = None, *, runs: RunService | None = None, logs: bool = False
) -> ServiceApp:
    """An ASGI application. `security` defaults to that of a loopback address without a key. `runs`: to watch; a service
    may have models, runs or both.
    """
    entries = all_routes(models=bool(service.models) or runs is None, runs=runs is not None)
    return ServiceApp(service, security or Security(), entries, runs=runs, logs=logs)


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """The compute thread lives as long as the application."""
    service: Service = app.state.service
    service.start()
    try:
        yield
    finally:
        await service.stop()
        if app.state.runs is not None:
            app.state.runs.close()
