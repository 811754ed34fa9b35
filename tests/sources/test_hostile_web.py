"""Servers and a resolver that lead visitors astray, all on loopback.

127.0.0.1 plays the open web here; whatever else listens, on 127.0.0.2 and ::1, is what nobody may reach. Every
connection that this process opens is noted by an audit hook, so it does not matter how it was opened.
"""

import gzip
import itertools
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import pytest

from weft.recipe.corpus import FetchSection
from weft.sources.web.addresses import NotFetched, is_open
from weft.sources.web.fetch import Visitor
from weft.sources.web.robots import MOST_ROBOTS_BYTES

CONNECTED = []
HTML = b"<html><body>A page.</body></html>"


def note(event, arguments):
    if event == "socket.connect":
        CONNECTED.append(arguments[1][0])


sys.addaudithook(note)


def answer(body=HTML, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: text/html", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def moved(place):
    return answer(b"", "302 Found", f"Location: {place}")


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.server.visits.append(self.client_address)
        with suppress(OSError, ValueError):
            asked = self.rfile.readline().split()[1].decode()
            headers = list(itertools.takewhile(bytes.strip, self.rfile))
            self.server.headers[asked] = headers
            given = self.server.answers.get(asked, answer(b"", "404 Not Found"))
            for piece in [given] if isinstance(given, bytes) else given(self.server.closing):
                self.wfile.write(piece)


class Web(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self, place):
        self.address_family = 10 if ":" in place[0] else 2
        super().__init__(place, Handler)
        self.visits, self.answers, self.headers, self.closing = [], {}, {}, threading.Event()


class World:
    """The server that may be asked, those that may not, and the names."""

    def __init__(self, stack):
        self.server = self.listen("127.0.0.1", 0, stack)
        self.port = self.server.server_address[1]
        self.canaries = [self.listen(ip, self.port, stack) for ip in ("127.0.0.2", "::1")]
        for canary in self.canaries:
            canary.answers = {path: answer(b"SECRET") for path in ("/", "/robots.txt", "/secret")}
        self.answers = self.server.answers
        self.turns = itertools.count()
        self.names = {
            "good.test": ["127.0.0.1"],
            "inside.test": ["127.0.0.2"],
            "mixed.test": ["127.0.0.1", "127.0.0.2"],
            "mixed-six.test": ["::1", "127.0.0.1"],
            "link-local.test": ["169.254.169.254"],
            "nat64.test": ["64:ff9b::7f00:2"],
            "mapped.test": ["::ffff:127.0.0.2"],
            "zone.test": ["fe80::1%lo"],
            "empty.test": [],
        }
        CONNECTED.clear()

    @staticmethod
    def listen(ip, port, stack):
        server = stack.enter_context(Web((ip, port)))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        stack.callback(server.shutdown)
        stack.callback(server.closing.set)
        return server

    def resolve(self, host):
        if host == "rebind.test":  # every second answer is another
            return [["127.0.0.1"], ["127.0.0.2"]][next(self.turns) % 2]
        if host not in self.names:
            raise OSError("no such host")
        return self.names[host]

    def visitor(self, **settings):
        settings = FetchSection(**{"delay": 0.0, "timeout": 5.0, "most_bytes": 100_000} | settings)
        return Visitor(settings, resolve=self.resolve, policy=lambda ip: ip == "127.0.0.1" or is_open(ip))

    def url(self, path, host="good.test"):
        return f"http://{host}:{self.port}{path}"

    def nothing_forbidden_was_reached(self):
        return not any(canary.visits for canary in self.canaries) and set(CONNECTED) <= {"127.0.0.1"}


@pytest.fixture
def world():
    with ExitStack() as stack:
        yield World(stack)


ASTRAY = [
    "http://127.0.0.2:PORT/secret",
    "http://inside.test:PORT/secret",
    "http://mixed.test:PORT/secret",
    "http://mixed-six.test:PORT/secret",
    "http://rebind.test:PORT/secret",
    "http://link-local.test/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://nat64.test:PORT/secret",
    "http://[64:ff9b::7f00:2]:PORT/secret",
    "http://mapped.test:PORT/secret",
    "http://[::ffff:127.0.0.2]:PORT/secret",
    "http://[::1]:PORT/secret",
    "http://zone.test:PORT/secret",
    "http://empty.test:PORT/secret",
    "http://unknown.test:PORT/secret",
    "http://2130706434:PORT/secret",
    "http://0x7f.2:PORT/secret",
    "http://127.2:PORT/secret",
    "http://①②⑦.0.0.2:PORT/secret",
    "http://good.test@127.0.0.2:PORT/secret",
    "http://good.test:22/",
    "//inside.test:PORT/secret",
    "https://inside.test:PORT/secret",
    "file:///etc/hostname",
    "gopher://127.0.0.2:PORT/",
]


@pytest.mark.parametrize("place", ASTRAY)
def test_a_redirect_of_a_page_reaches_no_forbidden_address(place, world):
    world.answers["/page"] = moved(place.replace("PORT", str(world.port)))
    with pytest.raises(NotFetched):
        world.visitor().fetch(world.url("/page"))
    assert world.nothing_forbidden_was_reached()


@pytest.mark.parametrize("place", ASTRAY)
def test_a_redirect_of_robots_txt_reaches_no_forbidden_address_and_closes_the_server(place, world):
    world.answers |= {"/robots.txt": moved(place.replace("PORT", str(world.port))), "/page": answer()}
    if "rebind" in place:
        next(world.turns)
    with pytest.raises(NotFetched, match=r"robots\.txt could not be read") as failure:
        world.visitor().fetch(world.url("/page"))
    assert failure.value.kind == "disallowed by robots.txt"
    assert world.nothing_forbidden_was_reached()


@pytest.mark.parametrize("place", [place for place in ASTRAY if place.startswith("http") and "rebind" not in place])
def test_a_list_cannot_name_a_forbidden_address(place, world):
    with pytest.raises(NotFetched):
        world.visitor().fetch(place.replace("PORT", str(world.port)))
    assert world.nothing_forbidden_was_reached()
    assert CONNECTED == []


def test_a_name_that_changes_its_address_is_connected_to_where_it_was_checked(world):
    world.answers |= {"/page": answer(), "/robots.txt": answer(b"")}
    for _ in range(4):
        with suppress(NotFetched):
            world.visitor().fetch(world.url("/page", "rebind.test"))
    assert CONNECTED and world.nothing_forbidden_was_reached()


def test_an_inside_host_is_requested_if_it_is_named_and_not_by_a_redirect_from_elsewhere(world):
    inside = world.canaries[0]
    inside.answers["/home"] = moved("/page")
    inside.answers |= {"/page": answer(), "/away": moved(world.url("/back")), "/robots.txt": answer(b"")}
    world.answers |= {"/back": moved(world.url("/page", "inside.test")), "/robots.txt": answer(b"")}
    visitor = world.visitor(inside=[f"inside.test:{world.port}"])
    assert visitor.fetch(world.url("/home", "inside.test")).body == HTML
    assert inside.headers["/page"][0] == f"Host: inside.test:{world.port}\r\n".encode()
    before = len(inside.visits)
    with pytest.raises(NotFetched, match="not a public address"):
        visitor.fetch(world.url("/back"))
    assert len(inside.visits) == before
    with pytest.raises(NotFetched, match="not a public address"):
        visitor.fetch(world.url("/away", "inside.test"))
    assert len(inside.visits) == before + 1
    with pytest.raises(NotFetched, match="not a public address"):
        world.visitor(inside=["inside.test"]).fetch(world.url("/page", "inside.test"))


def test_proxies_of_the_environment_are_not_used(world, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.2:{world.port}")
    world.answers["/page"] = answer()
    assert world.visitor().fetch(world.url("/page")).body == HTML
    assert world.nothing_forbidden_was_reached()


def drip(*pieces):
    """The pieces, again and again, until the test is over."""

    def pour(closing):
        yield pieces[0]
        while not closing.wait(0.02):
            yield pieces[1]

    pour.is_slow = True
    return pour


def flood(*pieces):
    def pour(_):
        yield pieces[0]
        while True:
            yield pieces[1] * 1000

    return pour


START = b"HTTP/1.1 200 OK\r\n"
FULL = START + b"Content-Type: text/html\r\n\r\n"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (drip(START, b"X-A: 1\r\n"), "too slow"),
        (drip(b"H", b""), "too slow"),
        (drip(FULL, b"x"), "too slow"),
        (drip(START + b"Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), "too slow"),
        (flood(START, b"X-A: 1\r\n"), "not HTTP"),
        (flood(START + b"X: ", b"x" * 100), "not HTTP"),
        (flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "too long"),
        (flood(FULL, b"x" * 100), "too long"),
        (flood(START + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 1000 + b"\r\nx\r\n"), "too long"),
        (answer(gzip.compress(b"x" * 10_000_000), "200 OK", "Content-Encoding: gzip"), "too long"),
        (answer(HTML, "200 OK", "Content-Encoding: gzip"), "compressed"),
        (answer(HTML, "200 OK", "Content-Encoding: br"), "compressed"),
        (answer(gzip.compress(HTML)[:-9], "200 OK", "Content-Encoding: gzip"), "cut off"),
        (FULL.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n") + HTML, "cut off"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"", "cannot be reached"),
        (answer(b"", "302 Found"), "bad redirect"),
    ],
)
def test_endless_answers_are_cut_off(given, kind, world):
    world.answers["/page"] = given
    with pytest.raises(NotFetched) as failure:
        world.visitor(timeout=0.3 if kind == "too slow" else 10.0).fetch(world.url("/page"))
    assert failure.value.kind == kind


def test_an_endless_handshake_times_out(world):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NotFetched, match=r"longer than 0\.3 seconds"):
        world.visitor(timeout=0.3).fetch(f"https://good.test:{silent.getsockname()[1]}/page")


def test_unrequested_compression_is_undone(world):
    packed = gzip.compress(HTML[:10]) + gzip.compress(HTML[10:])
    world.answers["/page"] = answer(packed, "200 OK", "Content-Encoding: gzip")
    assert world.visitor().fetch(world.url("/page")).body == HTML


@pytest.mark.parametrize(
    ("robots", "is_allowed"),
    [
        (answer(b"", "404 Not Found"), True),
        (answer(b"", "403 Forbidden"), True),
        (answer(b"", "429 Too Many Requests"), False),
        (answer(b"", "500 Oops"), False),
        (answer(b"", "501 Not Implemented"), False),
        (answer(b"", "520 Web Server Returned an Unknown Error"), False),
        (drip(FULL, b"# slow\n"), False),
        (drip(START, b"X-A: 1\r\n"), False),
        (b"", False),
        (FULL.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n") + b"User-agent: *", False),
        (moved("/robots.txt"), False),
        (moved("/other"), True),
        (flood(FULL + b"User-agent: *\nDisallow: /nothing\n", b"# filler\n"), True),
        (flood(FULL + b"User-agent: *\nDisallow: /page\n", b"# filler\n"), False),
        (FULL + b"User-agent: *\n" + b"# filler\n" * (MOST_ROBOTS_BYTES // 9) + b"Disallow: /page\n", True),
        (FULL + b"User-agent: *\n" + b"# filler\n" * (MOST_ROBOTS_BYTES // 9 - 9) + b"Disallow: /page\n", False),
        (answer(gzip.compress(b"User-agent: *\nDisallow: /page\n"), "200 OK", "Content-Encoding: gzip"), False),
    ],
)
def test_robots_txt_by_what_the_server_answers(robots, is_allowed, world):
    world.answers |= {"/robots.txt": robots, "/page": answer(), "/other": answer(b"User-agent: *\nDisallow: /private")}
    visitor = world.visitor(timeout=0.5 if hasattr(robots, "is_slow") else 10.0)
    if is_allowed:
        assert visitor.fetch(world.url("/page")).body == HTML
    else:
        with pytest.raises(NotFetched) as failure:
            visitor.fetch(world.url("/page"))
        assert failure.value.kind == "disallowed by robots.txt"
        assert "/page" not in world.server.headers


def test_a_fifth_redirect_of_robots_txt_is_followed_and_a_sixth_is_not(world):
    world.answers |= {f"/{hop}": moved(f"/{hop + 1}") for hop in range(6)}
    world.answers |= {"/5": answer(b"User-agent: *\nDisallow: /private"), "/page": answer()}
    world.answers["/robots.txt"] = moved("/1")
    assert world.visitor().fetch(world.url("/page")).body == HTML
    world.answers["/robots.txt"] = moved("/0")
    with pytest.raises(NotFetched, match="more than 5 times"):
        world.visitor().fetch(world.url("/page"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_the_certificate_is_checked_for_the_name_though_the_connection_goes_to_the_address(tmp_path, world):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=good.test", "-addext", "subjectAltName=DNS:good.test"]
    subprocess.run([*make, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    told = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: told.append(name)
    world.server.socket = context.wrap_socket(world.server.socket, server_side=True)
    world.answers["/page"] = answer()
    world.names["other.test"] = ["127.0.0.1"]
    visitor = world.visitor()
    visitor.trust = ssl.create_default_context(cafile=str(certificate))
    assert visitor.fetch(f"https://good.test:{world.port}/page").body == HTML
    assert set(told) == {"good.test"}
    with pytest.raises(NotFetched, match="certificate"):
        visitor.fetch(f"https://other.test:{world.port}/page")
    with pytest.raises(NotFetched, match="certificate"):
        world.visitor().fetch(f"https://good.test:{world.port}/page")
