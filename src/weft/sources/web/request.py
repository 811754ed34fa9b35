"""One HTTP request to a checked address, with limits on everything that comes back.

The connection goes to the checked IP address. The name is used only for the Host header, TLS's server name and its
certificate. Proxies of the environment are not used: a proxy resolves names itself, so its addresses cannot be checked.
The time limit is a deadline for the whole request: neither headers nor body can be drawn out byte by byte.
"""

import io
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import quote

from weft.sources.web.addresses import SAFE, Address, NotFetched, TryLater

_HEADER_BYTES, _CHUNK = 2**16, 2**16
_SECONDS_TO_STOP = 0.5
_FRAMING = 8  # most bytes on the wire per byte of a body, if it comes in small chunks
_REDIRECT_CODES = (301, 302, 303, 307, 308)
_TOO_MANY_REQUESTS = 429  # retried, like codes from 500 on


@dataclass(frozen=True)
class Limits:
    seconds: float
    most_bytes: int  # of a body, compressed and decompressed
    cut: bool = False  # a longer body is cut off instead of refused


@dataclass(frozen=True)
class Page:
    body: bytes
    content_type: str


def request_page(
    address: Address,
    ips: Sequence[str],
    limits: Limits,
    agent: str,
    *,
    trust: ssl.SSLContext | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Page | str:
    """Returns the page, or the address that it has moved to. `ips` come from `addresses.checked_ips`."""
    ends = time.monotonic() + limits.seconds
    try:
        with _Stream(_connect(address, ips, ends, trust or _trust()), ends, stopped) as stream:
            return _exchange(address, stream, limits, agent)
    except TimeoutError:
        raise TryLater(f"takes longer than {limits.seconds:g} seconds", "too slow") from None
    except IncompleteRead:
        raise TryLater("is cut off", "cut off") from None
    except ssl.SSLCertVerificationError as error:
        raise NotFetched(f"has a certificate that is not trusted ({error.verify_message})", "not trusted") from None
    except ConnectionError as error:
        raise TryLater(f"cannot be reached ({error})", "cannot be reached") from None
    except OSError as error:
        raise TryLater(f"cannot be reached ({error.strerror or error})", "cannot be reached") from None
    except (HTTPException, ValueError) as error:
        raise NotFetched(f"cannot be fetched ({type(error).__name__}: {error})", "not HTTP") from None


def _exchange(address: Address, stream: "_Stream", limits: Limits, agent: str) -> Page | str:
    lines = (
        f"GET {address.target} HTTP/1.1",
        f"Host: {address.netloc}",
        f"User-Agent: {agent}",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    stream.send("\r\n".join((*lines, "", "")).encode())
    answer = HTTPResponse(stream, method="GET")  # type: ignore[arg-type]  # it only calls makefile
    stream.most = _HEADER_BYTES  # for all answers "100 Continue" together
    answer.begin()
    told = f"answers {answer.status} {_clean(answer.reason or '')}".rstrip()
    if answer.status in _REDIRECT_CODES:
        place = answer.headers.get("Location")
        if not place:
            raise NotFetched(f"{told} without a new address", "bad redirect")
        return quote(place, SAFE + "#", encoding="latin-1")  # http.client decodes as Latin-1; this keeps UTF-8
    if answer.status == _TOO_MANY_REQUESTS or answer.status >= 500:
        raise TryLater(told, f"answers {answer.status}", _retry_after(answer.headers.get("Retry-After", "")))
    if not 200 <= answer.status < 300:
        raise NotFetched(told, f"answers {answer.status}")
    stream.most = stream.read_so_far + _HEADER_BYTES + _FRAMING * limits.most_bytes
    body = _read(answer, limits)
    compression = _clean(answer.headers.get("Content-Encoding", "")).strip().lower()
    if compression not in ("", "identity"):
        body = _decompressed(body, compression, limits)
    return Page(body, _clean(answer.headers.get("Content-Type", "")))


def _read(answer: HTTPResponse, limits: Limits) -> bytes:
    body = bytearray()
    while piece := answer.read1(_CHUNK):
        body += piece
        if len(body) > limits.most_bytes:
            if limits.cut:
                return bytes(body[: limits.most_bytes])
            raise _too_long(limits)
    if answer.length:  # bytes that were announced and are missing
        raise TryLater("is cut off", "cut off")
    return bytes(body)


def _decompressed(body: bytes, compression: str, limits: Limits) -> bytes:
    """Undo compression, which some servers use without being asked to."""
    if compression not in ("gzip", "x-gzip", "deflate"):
        raise NotFetched(f"is compressed as {compression}, which was not requested", "compressed")
    whole = bytearray()
    try:
        while body:  # gzip may have several members
            member = zlib.decompressobj(wbits=47)  # gzip or zlib, as its header says
            whole += member.decompress(body, limits.most_bytes + 1 - len(whole))
            if len(whole) > limits.most_bytes:
                if limits.cut:
                    return bytes(whole[: limits.most_bytes])
                raise _too_long(limits)
            if not member.eof and not limits.cut:
                raise TryLater("is cut off", "cut off")
            body = member.unused_data
    except zlib.error:
        raise NotFetched(f"cannot be decompressed as {compression}", "compressed") from None
    return bytes(whole)


def _too_long(limits: Limits) -> NotFetched:
    return NotFetched(f"is longer than {limits.most_bytes:,} bytes", "too long")


def _connect(address: Address, ips: Sequence[str], ends: float, trust: ssl.SSLContext) -> socket.socket:
    """To the first checked IP address that answers."""
    for tried, ip in enumerate(ips):
        left = _left(ends)
        link = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
        try:
            link.settimeout(left / (len(ips) - tried))
            link.connect((ip, address.port))
            if address.scheme == "http":
                return link
            link.settimeout(_left(ends))
            return trust.wrap_socket(link, server_hostname=address.host)
        except ssl.SSLCertVerificationError:
            link.close()
            raise
        except OSError:
            link.close()
            if tried == len(ips) - 1:
                raise
    raise AssertionError("a checked address has an IP address")


@lru_cache(1)
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Stream(io.RawIOBase):
    """Reads from a socket until the deadline, up to `most` bytes."""

    def __init__(self, link: socket.socket, ends: float, stopped: Callable[[], bool]) -> None:
        self.link, self.ends, self.stopped = link, ends, stopped
        self.most, self.read_so_far = _HEADER_BYTES, 0

    def send(self, data: bytes) -> None:
        self.link.settimeout(_left(self.ends))
        self.link.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self, _CHUNK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._receive(buffer)
        self.read_so_far += count
        if self.read_so_far > self.most + _CHUNK:  # a buffer may read ahead
            raise NotFetched("sends more bytes around the page than it may", "too long")
        return count

    def _receive(self, buffer: Any) -> int:
        while not self.stopped():
            self.link.settimeout(min(_left(self.ends), _SECONDS_TO_STOP))
            with suppress(TimeoutError):
                return self.link.recv_into(buffer)
        raise NotFetched("was stopped", "stopped")

    def close(self) -> None:
        self.link.close()
        super().close()


def _clean(value: str) -> str:
    return "".join(character for character in value if character.isprintable())[:200]


def _retry_after(value: str) -> float:
    return float(value[:9]) if value.isascii() and value.isdigit() else 0.0
