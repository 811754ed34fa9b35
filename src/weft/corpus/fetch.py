"""Pages from the web, politely: robots.txt is obeyed, a server is asked for one page at a time and not too often, and
nothing may take too long or be too large.

A source is an address, or a `.urls` file with one in each line. Each page is kept as a small WARC file, so that a build
that was stopped does not ask for it again and everything after this reads files. What could not be fetched is noted
with its reason.
"""

import hashlib
import io
import ipaddress
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener
from urllib.robotparser import RobotFileParser

from weft.errors import InputError, needs
from weft.folders import disk_errors, private_folder, read_json, rename_unless_there, to_json, write_file
from weft.progress import say, track
from weft.recipe import FetchSection, SourceSection

LIST, FAILURES = ".urls", "failures.json"
SERVERS, REDIRECTS, TRIES = 8, 5, 3
LONGEST_DELAY = 60.0  # seconds: a server that wants more than that between two pages gets no further visits
ROBOTS_BYTES, MOST_ADDRESSES, CHUNK = 500_000, 1_000_000, 2**16
PAUSES = (429, 500, 502, 503, 504)  # worth another try
PAGES = ("text/html", "application/xhtml+xml")


class NotFetched(Exception):
    """Why not, as the end of a sentence that begins with the address."""


class _TryLater(NotFetched):
    def __init__(self, reason: str, after: float) -> None:
        super().__init__(reason)
        self.after = after


def is_remote(path: str) -> bool:
    return path.lower().startswith(("http://", "https://")) or path.endswith(LIST)


def fetch_sources(
    entries: Sequence[SourceSection], base: Path, folder: Path, settings: FetchSection, kept: Path
) -> dict[str, Path]:
    """For each source of addresses, by its path, the folder that its pages are in now. `kept` is where an earlier build
    of the same corpus has left them.
    """
    fetched = {}
    for entry in entries:
        if not is_remote(entry.path):
            continue
        needs("warcio", "corpus", "to keep pages")
        addresses = read_addresses(entry.path, base)
        name = hashlib.sha256("\n".join(addresses).encode()).hexdigest()[:16]
        if (kept / name).is_dir() and not (folder / name).is_dir():
            say(f"{entry.path}: the pages were fetched before. Delete {kept} to fetch them again.")
            folder.mkdir(parents=True, exist_ok=True)
            with private_folder(folder) as new:
                shutil.copytree(kept / name, new, dirs_exist_ok=True)
                rename_unless_there(new, folder / name)
        _fetch_all(addresses, folder / name, settings)
        fetched[entry.path] = folder / name
        if not any((folder / name).glob("*.warc.gz")):
            address, reason = next(iter(failures_in(folder / name).items()))
            (folder / name / FAILURES).unlink()  # another time, perhaps
            raise InputError(f"No page of {entry.path} could be fetched; for example, {address} {reason}.")
    return fetched


def failures_in(folder: Path) -> dict[str, str]:
    return read_json(folder / FAILURES) if (folder / FAILURES).is_file() else {}


def read_addresses(path: str, base: Path) -> list[str]:
    if path.lower().startswith(("http://", "https://")):
        if not _is_address(path):
            raise InputError(f"{path} is not an address.")
        return [path]
    file = base / path
    if not file.is_file():
        raise InputError(f"{file} does not exist.")
    try:
        lines = [line.strip() for line in file.read_text("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise InputError(f"{file} is not a list of addresses in UTF-8.") from None
    addresses = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if len(addresses) > MOST_ADDRESSES:
        raise InputError(f"{file} has more than {MOST_ADDRESSES:,} addresses. Cut it into several lists.")
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#") and not _is_address(line):
            raise InputError(
                f"{file}, line {number}: {line[:80]!r} is not an address; they begin with https:// or http://."
            )
    if not addresses:
        raise InputError(f"{file} has no address in it.")
    return addresses


def _is_address(text: str) -> bool:
    try:
        return bool(text.lower().startswith(("http://", "https://")) and urlsplit(text).hostname)
    except ValueError:
        return False


def _fetch_all(addresses: Sequence[str], folder: Path, settings: FetchSection) -> None:
    if (folder / FAILURES).is_file():  # it was gone through before
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    servers: dict[str, list[str]] = {}
    for address in addresses:
        if not _file_of(folder, address).is_file():
            servers.setdefault(urlsplit(address).netloc, []).append(address)
    count = sum(map(len, servers.values()))
    failures: dict[str, str] = {}
    visitor = Visitor(settings)
    pool = ThreadPoolExecutor(SERVERS)
    try:
        turns = [pool.submit(_visit, visitor, mine, folder, failures) for mine in servers.values()]
        done = (None for turn in as_completed(turns) for _ in range(turn.result()))
        for _ in track(done, "Fetching pages", count, "pages"):
            pass
    finally:
        visitor.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    if failures:
        say(f"{len(failures):,} of {count:,} pages could not be fetched.")
    write_file(folder / FAILURES, to_json(dict(sorted(failures.items()))))


def _visit(visitor: "Visitor", addresses: Sequence[str], folder: Path, failures: dict[str, str]) -> int:
    """The pages of one server, one after another."""
    for address in addresses:
        if visitor.stop.is_set():
            break
        try:
            _keep(_file_of(folder, address), address, visitor.fetch(address))
        except NotFetched as reason:
            failures[address] = str(reason)
        except (ValueError, OverflowError) as error:  # what a server says is not always what urllib expects
            failures[address] = f"cannot be fetched ({error})"
    return len(addresses)


def _file_of(folder: Path, address: str) -> Path:
    return folder / f"{hashlib.sha256(address.encode()).hexdigest()[:24]}.warc.gz"


@dataclass(frozen=True)
class Page:
    body: bytes
    content_type: str
    encoding: str = ""  # gzip, from a server that does not do as it is asked


def _keep(file: Path, address: str, page: Page) -> None:
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    told = [("Content-Type", page.content_type), *([("Content-Encoding", page.encoding)] if page.encoding else [])]
    headers = StatusAndHeaders("200 OK", told, protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(address, "response", payload=io.BytesIO(page.body), http_headers=headers)
    )
    write_file(file, out.getvalue())


@dataclass
class Server:
    """What a server asked of its visitors, and when it may be asked next."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    robots: RobotFileParser | None = None
    closed: str = ""  # why nothing may be fetched
    next_visit: float = 0.0


class Visitor:
    """Fetches pages by the rules of their servers. Several threads may use it."""

    def __init__(self, settings: FetchSection) -> None:
        self.settings = settings
        self.stop = threading.Event()
        self.opener: OpenerDirector = build_opener(_NoRedirects)
        self.servers: dict[str, Server] = {}
        self.lock = threading.Lock()

    def fetch(self, address: str) -> Page:
        for attempt in range(1, TRIES + 1):
            try:
                return self._follow(address)
            except _TryLater as later:
                if attempt == TRIES or later.after > LONGEST_DELAY:
                    raise NotFetched(str(later)) from None
                self.stop.wait(max(later.after, 2.0**attempt * self.settings.delay))
        raise AssertionError

    def _follow(self, address: str) -> Page:
        asked = urlsplit(_plain(address)).hostname or ""
        for _ in range(REDIRECTS + 1):
            address = _plain(address)
            host = urlsplit(address).hostname or ""
            if host != asked and _is_inside(host) and not _is_inside(asked):
                raise NotFetched(f"leads to {host}, which is not open to the world")
            server = self._enter(address)
            if server.robots is not None and not server.robots.can_fetch(self.settings.agent, address):
                raise NotFetched("is closed to visitors by robots.txt")
            with server.lock:
                self._wait_turn(server)
            answer = self._ask(address, self.settings.most_bytes)
            if isinstance(answer, Page):
                if not answer.content_type.lower().startswith(PAGES):
                    raise NotFetched(f"is {answer.content_type.partition(';')[0] or 'of no known type'}, not a page")
                return answer
            address = urljoin(address, answer)
        raise NotFetched(f"leads on more than {REDIRECTS} times")

    def _enter(self, address: str) -> Server:
        """The server, once its robots.txt is known (RFC 9309)."""
        parts = urlsplit(address)
        with self.lock:
            server = self.servers.setdefault(f"{parts.scheme}://{parts.netloc}", Server())
        with server.lock:
            if server.robots is None and not server.closed:
                self._read_robots(urlunsplit((parts.scheme, parts.netloc, "/robots.txt", "", "")), server)
        if server.closed:
            raise NotFetched(server.closed)
        return server

    def _read_robots(self, address: str, server: Server) -> None:
        robots = RobotFileParser()
        try:
            for _ in range(REDIRECTS + 1):
                self._wait_turn(server)
                answer = self._ask(address, ROBOTS_BYTES)
                if isinstance(answer, Page):
                    robots.parse(answer.body.decode("utf-8", "replace").splitlines())  # RFC 9309: it is UTF-8
                    break
                address = _plain(urljoin(address, answer))
        except _TryLater as later:  # it may forbid everything; who knows
            server.closed = f"is on a server whose robots.txt could not be read: it {later}"
            return
        except NotFetched:
            robots.parse([])  # there is none: everything is open
        server.robots = robots
        asked = robots.crawl_delay(self.settings.agent)
        if asked is not None and int(asked) > LONGEST_DELAY:
            server.closed = f"is on a server that wants {asked} seconds between two pages"

    def _ask(self, address: str, most_bytes: int) -> Page | str:
        """A page, or where it has moved to."""
        request = Request(address, headers={"User-Agent": self.settings.agent, "Accept-Encoding": "identity"})  # noqa: S310
        ends = time.monotonic() + self.settings.timeout
        try:
            with self.opener.open(request, timeout=self.settings.timeout) as answer:
                body = self._read(answer, most_bytes, ends)
                if getattr(answer, "length", None):  # of what was announced, that much is missing
                    raise _TryLater("is cut off", 0.0)
                told = (_clean_header(answer.headers.get(name, "")) for name in ("Content-Type", "Content-Encoding"))
                return Page(body, *told)
        except HTTPError as error:
            with error:
                if error.code in (301, 302, 303, 307, 308) and (place := error.headers.get("Location")):
                    return place
                if error.code in PAUSES:
                    raise _TryLater(f"answers {error.code} {error.reason}", _retry_after(error.headers)) from None
                raise NotFetched(f"answers {error.code} {error.reason}") from None
        except (URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", error)
            raise _TryLater(f"cannot be reached ({reason})", 0.0) from None
        except (HTTPException, OSError, ValueError) as error:
            raise NotFetched(f"cannot be fetched ({type(error).__name__}: {error})") from None

    def _read(self, answer: IO[bytes], most: int, ends: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := answer.read1(CHUNK) if hasattr(answer, "read1") else answer.read(CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise NotFetched(f"is longer than {most:,} bytes")
            if time.monotonic() > ends:
                raise NotFetched(f"takes longer than {self.settings.timeout:g} seconds")
            if self.stop.is_set():
                raise NotFetched("was given up")
        return b"".join(pieces)

    def _wait_turn(self, server: Server) -> None:
        """With the server's lock."""
        asked = server.robots.crawl_delay(self.settings.agent) if server.robots is not None else None
        delay = max(self.settings.delay, float(asked or 0.0))
        self.stop.wait(max(0.0, server.next_visit - time.monotonic()))
        server.next_visit = time.monotonic() + delay


class _NoRedirects(HTTPRedirectHandler):
    """Each place that a page leads on to is asked for its rules first, so this is not urllib's to follow."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _plain(address: str) -> str:
    """In ASCII, without a fragment; only the web's own protocols."""
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").encode("idna").decode()
        port = f":{parts.port}" if parts.port is not None else ""
    except (ValueError, UnicodeError):
        raise NotFetched("is not an address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise NotFetched(f"leads to {address[:80]!r}, which is not on the web")
    if ":" in host:  # IPv6
        host = f"[{host}]"
    safe = "/%:=&?~+!$,;'@()*[]"
    return urlunsplit((parts.scheme, host + port, quote(parts.path or "/", safe), quote(parts.query, safe), ""))


def _is_inside(host: str) -> bool:
    """Whether it belongs to this machine or its network: nobody out there may send us to it."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False  # nobody can be sent there
    return any(not ipaddress.ip_address(str(one).partition("%")[0]).is_global for one in found)


def _clean_header(value: str) -> str:
    return "".join(character for character in value if character.isprintable())[:200]


def _retry_after(headers: Message) -> float:
    value = headers.get("Retry-After", "")
    return float(value[:9]) if value.isascii() and value.isdigit() else 0.0
