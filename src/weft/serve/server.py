"""uvicorn, with what it lacks for a service in the open: time limits for clients that dawdle, and our own shutdown.

On SIGTERM or Ctrl-C the listener closes, what was admitted is finished within the time given, and the process ends with
0. A second signal ends it at once.
"""

import asyncio
import gc
import logging
import socket
import sys
from functools import partial
from types import FrameType

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from weft.progress import say
from weft.serve.app import ServiceApp
from weft.serve.arguments import BACKLOG
from weft.serve.disconnect import DIRECT_WRITE
from weft.serve.errors import HTTPProblem, Unavailable
from weft.serve.limits import ServiceLimits

_SWITCH_SECONDS = 0.0005
_DRAIN_SECONDS = 5.0  # to read the rest of a body that was refused, so that the client sees the answer
_STALL_SECONDS = 60.0  # that a client may not read while the socket's buffer is full
_LAST_SECONDS = 5.0  # to send the last errors after the time for finishing


class ServiceConfig(uvicorn.Config):
    def __init__(self, app: ServiceApp) -> None:
        self.limits: ServiceLimits = app.state.service.limits
        super().__init__(
            DirectWrites(app),
            http=LimitedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=self.limits.keep_alive_seconds,
            timeout_graceful_shutdown=int(self.limits.shutdown_seconds + _LAST_SECONDS),
        )


class LimitedProtocol(H11Protocol):
    """One connection, closed if its client takes too long to send a request's headers or to read what is sent."""

    config: ServiceConfig
    _reading: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.config.limits.connections:
            self._refuse(HTTPProblem(503, "There are too many open connections.", headers={"retry-after": "1"}))
        else:
            self._reading = self.loop.call_later(self.config.limits.header_seconds, self._end)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_in_headers = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        is_draining = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if not (is_in_headers or is_draining):
            self._stop_reading_timer()
        elif self._reading is None:
            seconds = _DRAIN_SECONDS if is_draining else self.config.limits.header_seconds
            self._reading = self.loop.call_later(seconds, self._end)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(_STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading_timer()
        self._stop_stall_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPProblem(400, "This is not valid HTTP."))

    def _refuse(self, problem: HTTPProblem) -> None:
        """Answers without the application, and closes the connection."""
        body, phrase = problem.json(), {400: "Bad Request"}.get(problem.status, "Service Unavailable")
        lines = [f"HTTP/1.1 {problem.status} {phrase}", "content-type: application/json", "connection: close"]
        lines += [f"content-length: {len(body)}", *(f"{name}: {value}" for name, value in problem.headers.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

    def _end(self) -> None:
        self._reading = None
        self.transport.abort()

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_stall_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class DirectWrites:
    """Lets streams write to their connection without the layers in between, which take longer than a token's text."""

    def __init__(self, app: ServiceApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle) and scope.get("http_version") == "1.1":
            scope[DIRECT_WRITE] = partial(_write_chunk, cycle)
        await self.app(scope, receive, send)


def _write_chunk(cycle: RequestResponseCycle, data: bytes) -> bool:
    """As h11 writes a part of a body of unknown length: it keeps no account of them."""
    if cycle.disconnected or cycle.flow.write_paused or cycle.transport.is_closing():
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
    return True


class ServiceServer(uvicorn.Server):
    def __init__(self, app: ServiceApp) -> None:
        super().__init__(ServiceConfig(app))
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # errors are told by the gate, without texts
        self.service = app.state.service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        self.service.is_closing = self.should_exit = True
        say("Stopping: what was admitted is finished first. A second signal stops at once.")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.is_closing = True
        problem = Unavailable("The service was stopped before the answer was finished.")
        limit = self.service.limits.shutdown_seconds
        timer = asyncio.get_running_loop().call_later(limit, self.service.abandon, problem)
        await super().shutdown(sockets)
        timer.cancel()


def run_server(app: ServiceApp, listener: socket.socket) -> bool:
    """Serves until a signal comes. Returns whether everything that was admitted was finished."""
    server = ServiceServer(app)
    _allow_open_files(app.state.service.limits.connections)
    # The compute thread needs the interpreter for a moment after each step. By default another thread may keep it for
    # 5 ms: as long as the step.
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # models and libraries stay; collections need not look at them
    server.run(sockets=[listener])
    return not server.force_exit


def _allow_open_files(connections: int) -> None:
    """Many systems allow 1,024 open files by default, and each connection is one."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
