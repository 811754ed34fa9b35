"""Clients that no service deserves. Each function is one visit of one of them; it returns what it saw.

They leave in the middle of a stream, with and without a word, send half of a body, bytes that are no text, a hundred
megabytes, headers letter by letter, no HTTP at all, or read nothing of what they asked for.
"""

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

from small_service import POSITIONS, ROUTE, connect, post

LONG = {"model": "story", "prompt": "Alice", "max_tokens": POSITIONS - 20, "ignore_eos": True}
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HUGE = 100 * 2**20

Seen = dict[str, Any]  # status, or how it ended
Vandal = Callable[[int, random.Random], Awaitable[Seen]]


async def _open(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def _status(reader: asyncio.StreamReader, seconds: float) -> int:
    """Of the answer; 0 if the connection ends without one. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        try:
            line = await reader.readline()
        except OSError:
            return 0
    return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends the connection with RST, as a machine that lost power seems to."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def leaves_a_stream(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    writer.write(post(ROUTE, {**LONG, "stream": True, "n": chance.choice([1, 1, 4])}))
    async with asyncio.timeout(60):
        await reader.read(chance.choice([1, 100, 2000]))
    if chance.random() < 0.5:
        _reset(writer)
    else:
        writer.close()
    return {"left": True}


async def leaves_before_the_answer(port: int, chance: random.Random) -> Seen:
    _, writer = await _open(port)
    writer.write(post(ROUTE, {**LONG, "n": chance.choice([1, 2])}))
    await writer.drain()
    await asyncio.sleep(chance.choice([0.0, 0.01, 0.1]))
    if chance.random() < 0.5:
        _reset(writer)
    else:
        writer.close()
    return {"left": True}


async def sends_half_a_body(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    body = json.dumps(LONG).encode()
    writer.write(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
    await writer.drain()
    if chance.random() < 0.9:
        writer.close()
        return {"left": True}
    status = await _status(reader, 60)  # waits: the service must end it
    writer.close()
    return {"status": status, "allowed": [408, 0]}


async def sends_no_text(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    body = chance.choice(
        [
            b'{"prompt": "\xff\xfe", "max_tokens": 4}',
            b'{"prompt": "\xed\xa0\x80"}',
            b'{"prompt": "\\ud800"}',
            b'{"prompt": "Alice", "temperature": NaN}',
            b"[" * 100_000,
            b"\x00" * 1000,
            b'{"prompt": "Alice", "prompt',
            b"",
        ]
    )
    writer.write(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = await _status(reader, 60)
    writer.close()
    return {"status": status, "allowed": [400]}


async def sends_a_hundred_megabytes(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    piece = b" " * 2**16
    is_chunked = chance.random() < 0.5
    how = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {HUGE}"
    writer.write(f"{HEAD}{how}\r\n\r\n".encode())
    sent, answer = 0, asyncio.ensure_future(_status(reader, 60))
    try:
        while sent < HUGE and not answer.done():
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if is_chunked else piece)
            async with asyncio.timeout(30):
                await writer.drain()
            sent += len(piece)
            await asyncio.sleep(0)
    except OSError:  # it hung up, or no longer reads
        pass
    status = await answer
    writer.close()
    return {"status": status, "allowed": [413, 0], "megabytes": sent >> 20}


async def sends_headers_letter_by_letter(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    began = time.monotonic()
    try:
        for letter in f"{HEAD}X-Long: {'x' * 1000}":
            writer.write(letter.encode())
            await writer.drain()
            await asyncio.sleep(0.25)
            if reader.at_eof():
                break
    except OSError:
        pass
    writer.close()
    return {"closed_after": round(time.monotonic() - began, 1)}


async def speaks_no_http(port: int, chance: random.Random) -> Seen:
    reader, writer = await _open(port)
    said = chance.choice(
        [
            chance.randbytes(500),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
            b"GET / HTTP/9.9\r\n\r\n",
            f"{HEAD}Content-Length: -5\r\n\r\n".encode(),
            f"{HEAD}Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef".encode(),
            f"{HEAD}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
            f"{HEAD}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n".encode(),
            b"GET /health HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"\r\n" * 1000,
        ]
    )
    writer.write(said)
    status = await _status(reader, 60)
    writer.close()
    return {"status": status, "allowed": [400, 403, 404, 408, 413, 431, 0]}


async def reads_nothing(port: int, chance: random.Random) -> Seen:
    connection = await connect(port)
    connection.transport.pause_reading()
    connection.transport.write(post(ROUTE, {**LONG, "stream": True, "n": 8, "logprobs": 5}))
    await asyncio.sleep(chance.uniform(2, 10))
    connection.transport.abort()
    return {"left": True}


async def opens_many_connections(port: int, chance: random.Random, count: int = 1000, seconds: float = 8) -> Seen:
    """Half of them idle, half in the middle of a request's headers."""
    opened = []
    for number in range(count):
        try:
            opened.append(await _open(port))
            if number % 2:
                opened[-1][1].write(HEAD[: chance.randrange(len(HEAD))].encode())
        except OSError:
            break
    await asyncio.sleep(seconds)
    for _, writer in opened:
        writer.close()
    return {"opened": len(opened)}


# Seconds between two visits of each.
VANDALS: dict[Vandal, float] = {
    leaves_a_stream: 0.5,
    leaves_before_the_answer: 0.5,
    sends_half_a_body: 0.5,
    sends_no_text: 0.3,
    sends_a_hundred_megabytes: 5,
    sends_headers_letter_by_letter: 2,
    speaks_no_http: 0.5,
    reads_nothing: 5,
    opens_many_connections: 30,
}
