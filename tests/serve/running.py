"""A service in this process: uvicorn on a thread of its own, at a free port of the loopback address."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

import weft
from weft.serve.app import create_app
from weft.serve.arguments import address_of, open_listener
from weft.serve.limits import ServiceLimits
from weft.serve.loading import serve_models
from weft.serve.security import Security
from weft.serve.served import Service
from weft.serve.server import ServiceServer

MEMORY = 2**24


@dataclass(frozen=True)
class Running:
    address: str
    service: Service
    server: ServiceServer
    thread: threading.Thread
    client: httpx.Client

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(self.address + path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(self.address + path, **options)


@contextmanager
def serving(
    models: Mapping[str, weft.Model], limits: ServiceLimits | None = None, security: Security | None = None
) -> Iterator[Running]:
    limits = limits or ServiceLimits()
    service = Service(serve_models(dict(models), memory=MEMORY, limits=limits), limits)
    server = ServiceServer(create_app(service, security))
    listener = open_listener("127.0.0.1", 0)
    address = address_of(listener)  # requests wait in the listener's queue until the server takes them
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        with httpx.Client(timeout=60) as client:
            yield Running(address, service, server, thread, client)
    finally:
        server.should_exit = True
        thread.join()


def events(text: str) -> list[dict[str, Any]]:
    """The data of a stream of server-sent events, without [DONE]; raises if that is missing."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line and not line.startswith(":")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
