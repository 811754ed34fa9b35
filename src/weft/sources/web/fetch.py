"""Fetch pages politely: robots.txt is obeyed, a server gets one request at a time, and time and size are limited.

A source is an address, or a `.urls` file with one address per line. Each page is stored as a small WARC file: a build
that was stopped does not request it again, and the next stages read files. Failures are stored with their reasons.
`addresses` decides what may be requested, `request` sends a request, `robots` reads the rules of a server.
"""

import hashlib
import io
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

from weft.errors import InputError, needs
from weft.folders import disk_errors, private_folder, read_json, rename_unless_there, to_json, write_file
from weft.progress import say, track
from weft.recipe.corpus import FetchSection, SourceSection
from weft.sources.web.addresses import (
    REFUSED,
    Address,
    NotFetched,
    Policy,
    Resolver,
    TryLater,
    checked_ips,
    is_named,
    is_open,
    parse,
    system_resolver,
)
from weft.sources.web.request import Limits, Page, request_page
from weft.sources.web.robots import MOST_ROBOTS_BYTES, Robots, read_robots

_LIST_ENDING, _FAILURES = ".urls", "failures.json"
_MOST_SERVERS, _MOST_REDIRECTS, TRIES = 8, 5, 3
_LONGEST_DELAY = 60.0  # seconds; a server that wants a longer delay is not visited
_ROBOTS_SECONDS = 24 * 3600.0  # RFC 9309, 2.4: robots.txt is read again after a day
_MOST_ADDRESSES, _MOST_FAILURES_BYTES = 1_000_000, 2**34
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_DISALLOWED = "disallowed by robots.txt"

_Got = TypeVar("_Got")


def is_remote(path: str) -> bool:
    return path.lower().startswith(("http://", "https://")) or path.endswith(_LIST_ENDING)


def fetch_sources(
    entries: Sequence[SourceSection], base: Path, folder: Path, settings: FetchSection, kept: Path
) -> dict[str, Path]:
    """Returns the folder of the pages of each source of addresses, by the path of the source. `kept` has the pages of
    an earlier build of the same corpus.
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
        if not pages_in(folder / name):
            address, reason = next(iter(failures_in(folder / name).items()))
            (folder / name / _FAILURES).unlink()  # so that the next build tries again
            raise InputError(f"No page of {entry.path} could be fetched; for example, {address} {reason}.")
    return fetched


def pages_in(folder: Path) -> list[Path]:
    """The WARC files of a source."""
    return sorted(folder.glob("*.warc.gz"))


def failures_in(folder: Path) -> dict[str, str]:
    """Reasons by address."""
    return read_json(folder / _FAILURES, _MOST_FAILURES_BYTES) if (folder / _FAILURES).is_file() else {}


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
    if len(addresses) > _MOST_ADDRESSES:
        raise InputError(f"{file} has more than {_MOST_ADDRESSES:,} addresses. Cut it into several lists.")
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
    if (folder / _FAILURES).is_file():  # all addresses were tried before
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    servers: dict[str, list[str]] = {}
    for address in addresses:
        if not _file_of(folder, address).is_file():
            servers.setdefault(urlsplit(address).netloc, []).append(address)
    count = sum(map(len, servers.values()))
    failures: dict[str, NotFetched] = {}
    if proxies := {"http", "https", "all"} & getproxies().keys():
        say(f"The {'/'.join(sorted(proxies))} proxy of the environment is not used: its requests cannot be checked.")
    visitor = Visitor(settings)
    pool = ThreadPoolExecutor(_MOST_SERVERS)
    try:
        turns = [pool.submit(_visit, visitor, mine, folder, failures) for mine in servers.values()]
        done = (None for turn in as_completed(turns) for _ in range(turn.result()))
        for _ in track(done, "Fetching pages", count, "pages"):
            pass
    finally:
        visitor.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    if failures:
        kinds = Counter(reason.kind for reason in failures.values()).most_common()
        told = ", ".join(f"{number:,} {kind}" for kind, number in kinds)
        say(f"{len(failures):,} of {count:,} pages could not be fetched: {told}.")
    write_file(folder / _FAILURES, to_json({address: str(failures[address]) for address in sorted(failures)}))


def _visit(visitor: "Visitor", addresses: Sequence[str], folder: Path, failures: dict[str, NotFetched]) -> int:
    """Fetch the pages of one server, one after another. Returns how many there were."""
    for address in addresses:
        if visitor.stop.is_set():
            break
        try:
            _keep(_file_of(folder, address), address, visitor.fetch(address))
        except NotFetched as reason:
            failures[address] = reason
        except (ValueError, OverflowError) as error:  # from http.client, at malformed answers
            failures[address] = NotFetched(f"cannot be fetched ({error})")
    return len(addresses)


def _file_of(folder: Path, address: str) -> Path:
    return folder / f"{hashlib.sha256(address.encode()).hexdigest()[:24]}.warc.gz"


def _keep(file: Path, address: str, page: Page) -> None:
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    headers = StatusAndHeaders("200 OK", [("Content-Type", page.content_type)], protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(address, "response", payload=io.BytesIO(page.body), http_headers=headers)
    )
    write_file(file, out.getvalue())


@dataclass
class Server:
    """The rules of a server, and when it may be visited next."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # held during a request: one at a time
    robots: Robots | None = None
    closed: str = ""  # why nothing may be fetched
    known_since: float = 0.0
    next_visit: float = 0.0


class Visitor:
    """Fetches pages by the rules of their servers. Thread-safe.

    `resolve` turns names into IP addresses, `policy` says which of these may be requested, `trust` checks certificates.
    """

    def __init__(
        self,
        settings: FetchSection,
        *,
        resolve: Resolver | None = None,
        policy: Policy = is_open,
        trust: SSLContext | None = None,
    ) -> None:
        self.settings, self.policy, self.trust = settings, policy, trust
        self.resolve = resolve or system_resolver(settings.timeout)
        self.stop = threading.Event()
        self.servers: dict[str, Server] = {}
        self.lock = threading.Lock()

    def fetch(self, url: str) -> Page:
        return self._patiently(lambda: self._follow(parse(url)))

    def _patiently(self, attempt: Callable[[], _Got]) -> _Got:
        for number in range(1, TRIES + 1):
            try:
                return attempt()
            except TryLater as later:
                if number == TRIES or later.after > _LONGEST_DELAY or self.stop.is_set():
                    raise NotFetched(str(later), later.kind) from None
                self.stop.wait(max(later.after, 2.0**number * self.settings.delay))
        raise AssertionError

    def _follow(self, address: Address) -> Page:
        inside = is_named(address, self.settings.inside)
        limits = Limits(self.settings.timeout, self.settings.most_bytes)
        for _ in range(_MOST_REDIRECTS + 1):
            server = self._enter(address, inside)
            if server.robots is None or not server.robots.allows(address.target):
                raise NotFetched("is disallowed by robots.txt", _DISALLOWED)
            with server.lock:
                answer = self._ask(address, server, limits, inside)
            if isinstance(answer, Page):
                if not answer.content_type.lower().startswith(_PAGE_TYPES):
                    kind = answer.content_type.partition(";")[0]
                    raise NotFetched(f"is {kind or 'of no known type'}, not a page", "not a page")
                return answer
            address, inside = self._next(address, answer, inside)
        raise NotFetched(f"redirects more than {_MOST_REDIRECTS} times", "too many redirects")

    def _next(self, address: Address, place: str, inside: bool) -> tuple[Address, bool]:
        """The target of a redirect, and whether it may be inside: only on the host that the user named, and not if a
        redirect from elsewhere leads back to it."""
        moved = parse(urljoin(address.url, place))
        return moved, inside and moved.host == address.host and is_named(moved, self.settings.inside)

    def _enter(self, address: Address, inside: bool) -> Server:
        """The server, with its robots.txt read."""
        with self.lock:
            server = self.servers.setdefault(f"{address.scheme}://{address.netloc}", Server())
        with server.lock:
            is_known = server.robots is not None or server.closed
            if not is_known or time.monotonic() - server.known_since > _ROBOTS_SECONDS:
                self._read_robots(address.at("/robots.txt"), server, inside)
        if server.closed:
            raise NotFetched(server.closed, _DISALLOWED)
        return server

    def _read_robots(self, address: Address, server: Server, inside: bool) -> None:
        """RFC 9309, 2.3.1. Without a robots.txt (4xx) everything is allowed. If it cannot be read (5xx, too slow, bad
        redirects) nothing is."""
        robots, closed = None, ""
        try:
            body = self._patiently(lambda: self._robots_of(address, server, inside))
        except NotFetched as why:
            if why.kind == REFUSED:  # the server itself may not be requested
                raise
            closed = f"is on a server whose robots.txt could not be read: it {why}"
        else:
            robots = read_robots(body, self.settings.agent)
            if robots.crawl_delay is not None and robots.crawl_delay > _LONGEST_DELAY:
                closed = f"is on a server that wants {robots.crawl_delay:g} seconds between two pages"
        # Set together, at the end: another thread may be reading the old rules.
        server.robots, server.closed, server.known_since = robots, closed, time.monotonic()

    def _robots_of(self, address: Address, server: Server, inside: bool) -> bytes:
        limits = Limits(self.settings.timeout, MOST_ROBOTS_BYTES, cut=True)
        is_moved = False
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                answer = self._ask(address, server, limits, inside)
                if isinstance(answer, Page):
                    return answer.body
                is_moved = True
                address, inside = self._next(address, answer, inside)
            except NotFetched as why:
                if why.kind.startswith("answers 4") and not isinstance(why, TryLater):
                    return b""
                if is_moved and why.kind == REFUSED:
                    raise NotFetched(str(why), _DISALLOWED) from None
                raise
        raise NotFetched(f"redirects more than {_MOST_REDIRECTS} times", "too many redirects")

    def _ask(self, address: Address, server: Server, limits: Limits, inside: bool) -> Page | str:
        """Needs the server's lock. Every request goes through here, so that every address is checked."""
        ips = checked_ips(address, inside=inside, resolve=self.resolve, policy=self.policy)
        self._wait_turn(server)
        agent, stopped = self.settings.agent, self.stop.is_set
        return request_page(address, ips, limits, agent, trust=self.trust, stopped=stopped)

    def _wait_turn(self, server: Server) -> None:
        asked = server.robots.crawl_delay if server.robots is not None else None
        self.stop.wait(max(0.0, server.next_visit - time.monotonic()))
        server.next_visit = time.monotonic() + max(self.settings.delay, asked or 0.0)
