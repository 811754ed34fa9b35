"""A load on an HTTP service: clients in a closed loop, each with a connection of its own, which ask for the next answer
when they have one.

    python benchmarks/load_client.py        a turn per line of standard input, its answers as a line of JSON

It shares the machine with the service it measures, so it does little: no HTTP library, no parsing of an answer before
the last one has come. The protocol is HTTP/1.1 with keep-alive; answers are server-sent events or plain JSON.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

END_OF_CHUNKS = b"\r\n0\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: bytes
    body: bytes  # as sent, with the lengths of its chunks
    began: float
    first: float | None  # when the first event came; None for an answer that is not a stream
    ended: float

    @property
    def is_stream(self) -> bool:
        return b"text/event-stream" in self.headers.lower()

    @property
    def content(self) -> bytes:
        return _without_chunks(self.body) if _is_chunked(self.headers) else self.body

    def header(self, name: str) -> str | None:
        for line in self.headers.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.lower().encode():
                return value.strip().decode("latin-1")
        return None

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the only one of a plain answer."""
        if not self.is_stream:
            return [json.loads(self.content)]
        lines = self.content.split(b"\n")
        data = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [json.loads(one) for one in data if one != b"[DONE]"]

    @property
    def text(self) -> str:
        return "".join(choice.get("text") or "" for event in self.events for choice in event.get("choices", ()))

    @property
    def new_tokens(self) -> int:
        """As the service counted them."""
        return next(event["usage"]["completion_tokens"] for event in reversed(self.events) if event.get("usage"))


def _is_chunked(headers: bytes) -> bool:
    return b"transfer-encoding: chunked" in headers.lower()


def _without_chunks(body: bytes) -> bytes:
    parts, at = [], 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


class Connection(asyncio.Protocol):
    """One request at a time. `ask` raises ConnectionError if the service hangs up before the answer is complete."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.is_open = False
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.is_open = transport, True

    @property
    def has_begun_to_answer(self) -> bool:
        return bool(self._received)

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        self._received.clear()
        self._headers_end, self._length, self._is_stream, self._first = -1, -1, False, None
        self._answer = asyncio.get_running_loop().create_future()
        self._began = time.perf_counter()
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._headers_end < 0:
            self._read_headers()
        if self._is_stream and self._first is None and received.find(b"data:", self._headers_end) >= 0:
            self._first = time.perf_counter()
        if self._headers_end >= 0 and self._is_complete():
            self._finish()

    def _read_headers(self) -> None:
        self._headers_end = self._received.find(b"\r\n\r\n")
        if self._headers_end < 0:
            return
        headers = bytes(self._received[: self._headers_end]).lower()
        self._is_stream = b"text/event-stream" in headers
        if not _is_chunked(headers):
            _, found, value = headers.partition(b"content-length:")
            self._length = int(value.split(b"\r\n")[0]) if found else 0

    def _is_complete(self) -> bool:
        if self._length >= 0:
            return len(self._received) - self._headers_end - 4 >= self._length
        # JSON escapes line ends, so these bytes are nowhere inside an answer.
        return self._received.endswith(END_OF_CHUNKS)

    def _finish(self) -> None:
        ended, end = time.perf_counter(), self._headers_end
        headers, body = bytes(self._received[:end]), bytes(self._received[end + 4 :])
        if self._answer is not None and not self._answer.done():
            status = int(headers[9:12])
            self._answer.set_result(Answer(status, headers, body, self._began, self._first, ended))
        if b"connection: close" in headers.lower():
            self.transport.close()
            self.is_open = False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"hung up after {len(self._received)} bytes of an answer"))


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


def post(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode() + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def closed_loop(port: int, requests: Sequence[bytes], clients: int) -> list[Answer]:
    """The answers, in the order of the requests."""
    answers: list[Answer | None] = [None] * len(requests)
    waiting = iter(range(len(requests)))
    await asyncio.gather(*(_client(port, requests, waiting, answers) for _ in range(min(clients, len(requests)))))
    return [answer for answer in answers if answer is not None]


async def _client(port: int, requests: Sequence[bytes], waiting: Iterator[int], answers: list[Answer | None]) -> None:
    connection = await connect(port)
    for number in waiting:
        connection, answers[number] = await ask_again(port, connection, requests[number])
    connection.transport.close()


async def ask_again(port: int, connection: Connection, request: bytes) -> tuple[Connection, Answer]:
    """An answer over a connection that was used before. A service may end one between two answers, as llama.cpp's does
    after a stream; then a new one is opened, within the time of the request.
    """
    began = time.perf_counter()
    try:
        if connection.is_open:
            return connection, await connection.ask(request)
    except ConnectionError:
        if connection.has_begun_to_answer:
            raise
    connection = await connect(port)
    answer = await connection.ask(request)
    return connection, replace(answer, began=began)


def measure(port: int, path: str, bodies: list[dict[str, Any]], clients: int) -> dict[str, Any]:
    """One turn. Every answer must have as many tokens as were asked for."""
    requests = [post(path, body) for body in bodies]
    gc.disable()
    busy = time.process_time()
    began = time.perf_counter()
    answers = asyncio.run(closed_loop(port, requests, clients))
    seconds = time.perf_counter() - began
    busy = time.process_time() - busy
    gc.enable()
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status == 200, f"{answer.status}: {answer.content[:500]!r}"
        assert answer.new_tokens == body["max_tokens"], f"{answer.new_tokens} tokens, not {body['max_tokens']}"
    return {
        "seconds": seconds,
        "tokens": sum(body["max_tokens"] for body in bodies),
        "first": [(answer.first or answer.ended) - answer.began for answer in answers],
        "client_seconds": busy,
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
