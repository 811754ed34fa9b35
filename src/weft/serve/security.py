"""Who may ask, and how: the Host header, the key, the kind and size of the body.

The order matters. The Host header comes first: a page of another site can let its own name point to this machine (DNS
rebinding), and the browser then takes our answers for that site's. Only then CORS, the key, and the body. A body must
be declared as JSON: a browser sends that to another site only after asking (preflight), which a plain form is not.
"""

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.errors import InputError, not_found
from weft.serve.errors import HTTPProblem, Overloaded
from weft.serve.limits import ServiceLimits

OPEN_PATHS = ("/health",)  # without a key: load balancers ask for it
PAGE_FILES = "/page/"  # the page's own files: a browser cannot send a key before it has them
REPORT_FRAMES = "/report/"  # what follows is a ticket, which only those with a key are given: a frame sends no key
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_LEAST_KEY = 16  # characters


@dataclass(frozen=True)
class Security:
    """`key_hashes`: empty if no key is needed. `hosts`: names that the Host header may have; `*`: any."""

    key_hashes: frozenset[bytes] = frozenset()
    hosts: frozenset[str] = frozenset(_LOOPBACK_NAMES)
    any_address: bool = False  # whether a numeric address is a good Host: no site's name can be one
    origins: tuple[str, ...] = ()  # of pages that may ask (CORS)

    @classmethod
    def of(
        cls,
        host: str,
        key_file: Path | None = None,
        allowed_hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> "Security":
        """Raises InputError if others could use the service without a key."""
        hashes = frozenset() if key_file is None else read_keys(key_file)
        if not is_loopback(host) and not hashes:
            raise InputError(
                f"{host} can be reached from other machines, so a key is needed: --api-key-file FILE (a key per line)."
            )
        names = {*_LOOPBACK_NAMES, host_name(host), *map(host_name, allowed_hosts)}
        return cls(hashes, frozenset(names), not is_loopback(host), tuple(origins))

    def knows_host(self, header: str | None) -> bool:
        if "*" in self.hosts:
            return True
        name = host_name(header or "")
        return name in self.hosts or (_is_address(name) and (self.any_address or is_loopback(name)))

    def knows_key(self, headers: Headers) -> bool:
        if not self.key_hashes:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        found = _hash(given)
        # All are compared, each in constant time, so that the time tells nothing.
        equal = [hmac.compare_digest(found, known) for known in self.key_hashes]
        return bool(given) and any(equal)


def read_keys(file: Path) -> frozenset[bytes]:
    """Hashes of the keys in a file: one per line; blank lines and those after # are skipped."""
    if not file.is_file():
        raise InputError(not_found(file))
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8; it should hold a key per line.") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise InputError(f"{file} holds no key. Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'")
    for key in keys:
        if len(key) < _LEAST_KEY or not key.isascii() or " " in key:
            raise InputError(f"{file}: a key has at least {_LEAST_KEY} letters, digits or signs, and no spaces.")
    return frozenset(map(_hash, keys))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def host_name(header: str) -> str:
    """The name in a Host header, without the port and the brackets of IPv6."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    name, colon, port = name.partition(":")
    return name if not colon or port.isdigit() else header.strip().lower()


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """Refuses requests to names that are not ours."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self.app, self.security = app, security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self.security.knows_host(hosts[0].decode("latin-1")):
            raise HTTPProblem(
                403,
                "This service does not answer to this name (the Host header). Its own name is given with "
                "--allowed-host.",
                code="unknown_host",
            )
        await self.app(scope, receive, send)


class KeyCheck:
    """Refuses requests without a key, and bodies that are not JSON."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self.app, self.security = app, security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not _is_open(scope["path"], headers) and not self.security.knows_key(headers):
            raise HTTPProblem(
                401,
                "The key is missing or wrong. Send it as: Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        if scope["method"] == "POST":
            _check_is_json(headers)
        await self.app(scope, receive, send)


def _is_open(path: str, headers: Headers) -> bool:
    """Whether a path needs no key: it shows nothing of models, runs or users, or is a secret itself."""
    is_page = path.startswith((PAGE_FILES, REPORT_FRAMES)) or (path == "/" and wants_page(headers))
    return path in OPEN_PATHS or is_page


def wants_page(headers: Headers) -> bool:
    """Whether a browser asks for a page, rather than a program for JSON."""
    return "text/html" in headers.get("accept", "")


def _check_is_json(headers: Headers) -> None:
    kind, _, rest = headers.get("content-type", "").partition(";")
    if kind.strip().lower() != "application/json":
        raise HTTPProblem(415, "The body is JSON: send Content-Type: application/json.", code="unsupported_media_type")
    charset = rest.lower().partition("charset=")[2].strip(" \"'")
    if charset.replace("-", "") not in ("", "utf8"):
        raise HTTPProblem(415, "The body is UTF-8, not of another charset.", code="unsupported_media_type")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPProblem(415, "The body is not compressed: send no Content-Encoding.", code="unsupported_media_type")


class BodyLimit:
    """Ends requests whose body is too large (413) or comes too slowly (408), before more of it is kept."""

    def __init__(self, app: ASGIApp, limits: ServiceLimits) -> None:
        self.app, self.limits = app, limits
        self.held = 0  # bytes of the bodies of all requests being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > self.limits.body_bytes):
            raise self._too_large()
        until = asyncio.get_running_loop().time() + self.limits.body_seconds
        size, is_complete = 0, False

        async def limited() -> Message:
            nonlocal size, is_complete
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HTTPProblem(408, "The body came too slowly.", headers={"connection": "close"}) from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                self.held += len(message.get("body", b""))
                is_complete = not message.get("more_body", False)
                if size > self.limits.body_bytes:
                    raise self._too_large()
                if self.held > self.limits.all_body_bytes:
                    raise Overloaded("The bodies of all requests are too large together. Try again later.")
            return message

        try:
            await self.app(scope, limited, send)
        finally:
            self.held -= size

    def _too_large(self) -> HTTPProblem:
        return HTTPProblem(413, f"The body is larger than {self.limits.body_bytes:,} bytes.", code="body_too_large")
