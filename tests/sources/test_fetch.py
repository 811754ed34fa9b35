"""Fetching from a server on loopback that counts its requests."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from weft.corpus.build import build_corpus
from weft.errors import InputError
from weft.recipe.corpus import CorpusSection, FetchSection, SourceSection
from weft.sources.documents import scan
from weft.sources.reading import Reading
from weft.sources.web import fetch
from weft.sources.web.addresses import parse
from weft.sources.web.fetch import NotFetched, Visitor, failures_in, fetch_sources, pages_in, read_addresses

SENTENCE = "The quick brown fox jumps over the lazy dog, and then it rests a while in the shade of an old tree. "
ROBOTS = "User-agent: *\nDisallow: /private\n\nUser-agent: rude\nDisallow: /\n"


def html(title):
    return f"<html><head><title>{title}</title></head><body><p>{title}. {SENTENCE * 5}</p></body></html>"


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, time.monotonic(), self.headers["User-Agent"]))
        match self.path:
            case "/robots.txt":
                self.answer(self.server.robots_status, ROBOTS.encode(), "text/plain")
            case "/moved":
                self.answer(302, b"", location="/page/1")
            case "/moved-to-private":
                self.answer(302, b"", location="/private")
            case "/moved-to-a-file":
                self.answer(302, b"", location="file:///etc/passwd")
            case "/circle":
                self.answer(302, b"", location="/circle")
            case "/missing":
                self.answer(404, b"nothing here")
            case "/busy":
                tries = sum(path == "/busy" for path, _, _ in self.server.asked)
                self.answer(503 if tries < 3 else 200, html("Busy").encode())
            case "/large":
                self.answer(200, b"x" * 2_000_000)
            case "/picture":
                self.answer(200, b"\x89PNG", "image/png")
            case "/slow":
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                for _ in range(100):
                    if self.server.closing.wait(0.05):
                        return
                    self.wfile.write(b"x" * 10)
                    self.wfile.flush()
            case "/chinese":
                self.answer(200, html("狐狸").encode("gbk"), "text/html; charset=gbk")
            case _:
                self.answer(200, html(self.path).encode())

    def answer(self, status, body, kind="text/html", location=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.asked, server.robots_status, server.closing = [], 200, threading.Event()
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


def quick(site, **more):
    """Settings that name this server, which is on an inside address."""
    given = {"delay": 0.0, "timeout": 10.0, "most_bytes": 1_000_000, "inside": [f"127.0.0.1:{site.server_port}"]}
    return FetchSection(**given | more)


def paths(site):
    return [path for path, _, _ in site.asked]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/private", "disallowed by robots.txt"),
        ("/moved-to-private", "disallowed by robots.txt"),
        ("/moved-to-a-file", "not on the web"),
        ("/circle", "redirects more than 5 times"),
        ("/missing", "answers 404"),
        ("/large", "longer than 1,000,000 bytes"),
        ("/picture", "is image/png, not a page"),
    ],
)
def test_what_cannot_be_fetched_has_a_reason(path, reason, site):
    with pytest.raises(NotFetched, match=reason):
        Visitor(quick(site)).fetch(site.address + path)
    assert "/private" not in paths(site)


def test_moved_and_busy_pages_are_fetched(site):
    visitor = Visitor(quick(site))
    assert b"/page/1" in visitor.fetch(site.address + "/moved").body
    assert b"Busy" in visitor.fetch(site.address + "/busy").body
    assert paths(site).count("/busy") == 3
    assert paths(site).count("/robots.txt") == 1


def test_a_page_may_not_take_too_long(site):
    with pytest.raises(NotFetched, match=r"longer than 0\.5 seconds"):
        Visitor(quick(site, timeout=0.5)).fetch(site.address + "/slow")


class Clock:
    """Time that passes only while somebody waits for it."""

    def __init__(self):
        self.now = 1000.0

    def wait(self, seconds):
        self.now += seconds

    def is_set(self):
        return False


def test_a_server_is_not_asked_too_often(site, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    visitor = Visitor(quick(site, delay=2.0))
    visitor.stop = clock
    for number in range(4):
        visitor.fetch(f"{site.address}/page/{number}")
    assert [moment for _, moment, _ in site.asked] == [1000.0, 1002.0, 1004.0, 1006.0, 1008.0]


def test_rules_are_read_again_after_a_day(site, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    visitor = Visitor(quick(site))
    for hours in (0, 23, 2):
        clock.now += hours * 3600
        visitor.fetch(f"{site.address}/page/1")
    assert paths(site) == ["/robots.txt", "/page/1", "/page/1", "/robots.txt", "/page/1"]


def test_failures_are_counted_by_their_reason_and_an_unused_proxy_is_said(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    addresses = [f"{site.address}{p}" for p in ("/page/1", "/missing", "/private", "/moved-to-private")]
    (tmp_path / "pages.urls").write_text("\n".join([*addresses, "http://169.254.169.254/latest/"]))
    fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "work", quick(site), tmp_path / "kept")
    said = capsys.readouterr().err
    assert "4 of 5 pages could not be fetched: 2 disallowed by robots.txt, 1 " in said
    assert "1 answers 404" in said and "1 address refused" in said
    assert "The https proxy of the environment is not used" in said


def test_the_rules_for_our_agent_apply_and_it_is_sent_as_user_agent(site):
    with pytest.raises(NotFetched, match="robots"):
        Visitor(quick(site, agent="rude")).fetch(site.address + "/page/1")
    assert {agent for _, _, agent in site.asked} == {"rude"}


@pytest.mark.parametrize(("status", "is_open"), [(404, True), (503, False)])
def test_without_robots_txt_everything_is_allowed_and_with_a_broken_one_nothing(status, is_open, site, monkeypatch):
    monkeypatch.setattr(fetch, "TRIES", 1)
    site.robots_status = status
    visitor = Visitor(quick(site))
    if is_open:
        assert visitor.fetch(site.address + "/private").body
    else:
        with pytest.raises(NotFetched, match=r"robots\.txt could not be read"):
            visitor.fetch(site.address + "/page/1")


def test_a_server_that_is_not_there():
    with pytest.raises(NotFetched, match=r"could not be read|cannot be reached"):
        Visitor(FetchSection(delay=0.0, inside=["127.0.0.1:1"])).fetch("http://127.0.0.1:1/")


def entry(path):
    return SourceSection(path=path)


def test_a_list_is_fetched_once_and_read_as_pages(site, tmp_path):
    addresses = [f"{site.address}/page/{number}" for number in range(5)] + [
        f"{site.address}{p}" for p in ("/missing", "/chinese")
    ]
    (tmp_path / "pages.urls").write_text("# pages\n" + "\n".join([*addresses, addresses[0]]) + "\n")
    fetched = fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "work", quick(site), tmp_path / "kept")
    folder = fetched["pages.urls"]
    documents = [found for file in pages_in(folder) for found in scan(file, Reading())]
    assert sorted(d.address for d in documents) == sorted(a for a in addresses if "missing" not in a)
    assert any("狐狸" in d.text for d in documents)
    assert failures_in(folder) == {f"{site.address}/missing": "answers 404 Not Found"}
    asked = len(site.asked)
    fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "work", quick(site), tmp_path / "kept")
    fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "other", quick(site), tmp_path / "work")
    assert len(site.asked) == asked


def test_fetching_resumes_after_an_interruption(site, tmp_path, monkeypatch):
    (tmp_path / "pages.urls").write_text("\n".join(f"{site.address}/page/{number}" for number in range(6)))
    real, kept = fetch._keep, []

    def stops(file, address, page):
        if len(kept) == 3:
            raise KeyboardInterrupt
        kept.append(address)
        real(file, address, page)

    monkeypatch.setattr(fetch, "_keep", stops)
    with pytest.raises(KeyboardInterrupt):
        fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "work", quick(site), tmp_path / "kept")
    monkeypatch.setattr(fetch, "_keep", real)
    site.asked.clear()
    fetch_sources([entry("pages.urls")], tmp_path, tmp_path / "work", quick(site), tmp_path / "kept")
    assert len([path for path in paths(site) if path.startswith("/page")]) == 3


def test_a_corpus_of_addresses(site, tmp_path):
    (tmp_path / "pages.urls").write_text("\n".join(f"{site.address}{p}" for p in ("/page/1", "/missing", "/private")))
    tree = {
        "sources": [{"path": "pages.urls"}, {"path": f"{site.address}/moved", "name": "one"}],
        "splits": {"validation": 0.0},
        "build": {"fetch": quick(site).model_dump(), "filter": None, "deduplicate": {"exact": False, "near": False}},
    }
    facts = build_corpus(CorpusSection.model_validate(tree), tmp_path, tmp_path / "corpus")
    assert facts["documents"] == 2
    assert facts["dropped"] == {"not fetched": 2}
    assert (tmp_path / "corpus/fetched").is_dir()
    asked = len(site.asked)
    assert build_corpus(CorpusSection.model_validate(tree), tmp_path, tmp_path / "corpus") == facts
    assert len(site.asked) == asked


def test_malformed_lists_of_addresses_are_refused(tmp_path):
    (tmp_path / "a.urls").write_text("# nothing\n")
    (tmp_path / "b.urls").write_text("https://example.org/\nftp://example.org/\n")
    with pytest.raises(InputError, match="no address"):
        read_addresses("a.urls", tmp_path)
    with pytest.raises(InputError, match="line 2"):
        read_addresses("b.urls", tmp_path)


def test_old_rules_of_a_server_hold_until_new_ones_are_read(monkeypatch):
    visitor, address = Visitor(FetchSection()), parse("https://example.org/page")
    seen = []

    def robots_of(place, server, inside):
        seen.append(server.robots)
        return b""

    monkeypatch.setattr(visitor, "_robots_of", robots_of)
    server = visitor._enter(address, inside=False)
    before, server.known_since = server.robots, -1e9
    visitor._enter(address, inside=False)
    assert seen == [None, before] and before is not None


def test_more_failures_can_be_read_than_a_manifest_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.read_json, "__defaults__", (100,))
    fetch.write_file(tmp_path / fetch._FAILURES, fetch.to_json({f"https://a.org/{n}": "is gone" for n in range(10)}))
    assert len(failures_in(tmp_path)) == 10
