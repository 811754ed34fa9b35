"""Host, key, content type and size of the body, over all routes; bodies made to break a parser."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running, serving

import weft
from weft.errors import InputError
from weft.serve.app import all_routes
from weft.serve.limits import ServiceLimits
from weft.serve.security import Security, host_name, read_keys

KEY = "a-key-of-the-tests-1234567890"
NAMES = {"{model}": "story", "{task}": "classify", "{file:path}": "app.js"}
OPEN = ("/health", "/page/app.js")


def example_path(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(name, value)
    return path


ROUTES = [(entry.method, example_path(entry.path)) for entry in all_routes(runs=False)]
LIMITS = ServiceLimits(body_bytes=20_000, header_seconds=0.3, body_seconds=0.3, keep_alive_seconds=1)


@pytest.fixture(scope="module")
def guarded(models: dict[str, weft.Model], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"# keys of the tests\n\n{KEY}\nanother-key-of-the-tests\n")
    security = Security.of("127.0.0.1", file, ["weft.example"], ["https://page.example"])
    with serving({name: models[name] for name in ("story", "reader")}, LIMITS, security) as found:
        yield found


def send(running: Running, method: str, path: str, body: object = None, **headers: str):
    headers = {"authorization": f"Bearer {KEY}", "content_type": "application/json", **headers}
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items() if value}
    return running.client.request(method, running.address + path, content=data, headers=headers)


def problem(answer, status: int) -> dict:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    return error


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_checks_host_key_content_type_and_size(guarded: Running, method: str, path: str):
    assert problem(send(guarded, method, path, host="evil.example"), 403)["code"] == "unknown_host"
    without = send(guarded, method, path, authorization="")
    if path in OPEN:
        assert without.status_code == 200
    else:
        assert problem(without, 401)["type"] == "authentication_error"
        assert without.headers["www-authenticate"] == "Bearer"
    if method == "POST":
        problem(send(guarded, method, path, {}, content_type="text/plain"), 415)
        problem(send(guarded, method, path, b" " * 20_001), 413)
        problem(send(guarded, method, path, b"[]"), 400)
        problem(send(guarded, "GET", path), 405)
    else:
        assert send(guarded, method, path).status_code == 200
        problem(send(guarded, "POST", path, {}), 405)


def test_nearly_right_is_wrong(guarded: Running):
    for host in ("evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:evil", "[::2]"):
        problem(send(guarded, "GET", "/health", host=host), 403)
    for key in ("Bearer wrong", f"Bearer {KEY}x", f"Basic {KEY}", KEY, "Bearer"):
        problem(send(guarded, "GET", "/v1/models", authorization=key), 401)
    kinds = (
        "",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
    )
    for kind in kinds:
        problem(send(guarded, "POST", "/v1/completions", {}, content_type=kind), 415)
    problem(send(guarded, "POST", "/v1/completions", {}, content_encoding="gzip"), 415)


def test_other_good_keys_and_hosts(guarded: Running):
    assert send(guarded, "GET", "/v1/models", authorization="", x_api_key=KEY).status_code == 200
    assert send(guarded, "GET", "/v1/models", authorization="bearer another-key-of-the-tests").status_code == 200
    for host in (
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:9",
        "[::1]:8000",
        "127.0.0.2",
        "weft.example",
        "weft.example:80",
    ):
        assert send(guarded, "GET", "/v1/models", host=host).status_code == 200
    problem(send(guarded, "GET", "/v1/models", host="192.168.0.9"), 403)  # it listens at loopback only


def test_what_is_not_there_is_said_in_the_same_shape(guarded: Running):
    problem(send(guarded, "GET", "/nothing"), 404)
    problem(send(guarded, "POST", "/v1/completions/", {}), 404)
    problem(send(guarded, "DELETE", "/v1/models"), 405)
    assert problem(send(guarded, "GET", "/v1/models/nobody"), 404)["code"] == "model_not_found"
    for path in ("/v1/models/..%2f..%2fetc%2fpasswd", "/../../etc/passwd", "/%2e%2e/x", "/v1/models/%00"):
        problem(send(guarded, "GET", path), 404)


def test_request_ids_are_kept_if_they_are_harmless(guarded: Running):
    assert send(guarded, "GET", "/health", x_request_id="mine-1").headers["x-request-id"] == "mine-1"
    made = send(guarded, "GET", "/health", x_request_id="x" * 500).headers["x-request-id"]
    assert made.startswith("req-")


def test_other_sites_may_ask_only_if_they_are_named(guarded: Running, running: Running):
    asks = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
    allowed = send(guarded, "OPTIONS", "/v1/completions", authorization="", origin="https://page.example", **asks)
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    other = send(guarded, "OPTIONS", "/v1/completions", authorization="", origin="https://evil.example", **asks)
    assert "access-control-allow-origin" not in other.headers
    refused = send(guarded, "POST", "/v1/completions", {}, authorization="", origin="https://page.example")
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://page.example"
    plain = send(running, "OPTIONS", "/v1/completions", origin="https://page.example", **asks)
    assert "access-control-allow-origin" not in plain.headers


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b"\xff\xfe{}",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ["a", {"\\uDFFF": 1}]}',
        b'{"temperature": NaN}',
        b'{"temperature": -Infinity}',
        b'{"temperature": 1e999}',
        b'{"seed": ' + b"9" * 6_000 + b"}",
        b'{"seed": 1' + b"0" * 400 + b"}",
        b'{"x": ' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        b"[" * 19_000,
        b'{"x":' * 3_000 + b"1" + b"}" * 3_000,
        b'{"guided_json": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}",
        b'{"prompt": ["a", 1]}',
        b'{"model": null, "prompt": true}',
    ],
)
def test_bodies_that_break_parsers_are_bad_requests(guarded: Running, body: bytes):
    problem(send(guarded, "POST", "/v1/completions", body), 400)


def test_keys_given_twice_and_marks_at_the_start_are_fine(guarded: Running):
    answer = send(guarded, "POST", "/v1/completions", b'\xef\xbb\xbf{"prompt": 1, "prompt": "A", "max_tokens": 1}')
    assert answer.status_code == 200


def exchange(port: int, *parts: bytes) -> bytes:
    """What the server says to bytes on a connection, until it closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for part in parts:
            client.sendall(part)
        found = b""
        try:
            while data := client.recv(65536):
                found += data
        except ConnectionResetError:
            pass
        return found


HEAD = (
    "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
    f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
)


def test_clients_that_dawdle_are_let_go(guarded: Running):
    assert exchange(guarded.port) == b""
    assert exchange(guarded.port, b"GET /health HT") == b""
    assert exchange(guarded.port, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea").startswith(
        b"HTTP/1.1 200"
    )
    half = exchange(guarded.port, HEAD.encode() + b"content-length: 100\r\n\r\n{")
    assert half.startswith(b"HTTP/1.1 408")


def test_a_client_that_leaves_in_its_body_is_no_error(guarded: Running, capfd: pytest.CaptureFixture):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as client:
        client.sendall(HEAD.encode() + b"content-length: 100\r\n\r\n{")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    text = send(guarded, "GET", "/metrics").text
    assert 'route="/v1/completions",status="499"' in text
    assert 'status="500"' not in text
    assert capfd.readouterr().err == ""


def test_a_large_body_in_chunks_is_refused_while_it_comes(guarded: Running):
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    found = exchange(
        guarded.port, HEAD.encode() + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n", chunk * 6
    )
    assert found.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in found


def test_what_is_no_http_is_answered_in_shape(guarded: Running):
    found = exchange(guarded.port, b"\x16\x03\x01 hello\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400")
    assert b'"type": "invalid_request_error"' in found
    assert exchange(guarded.port, b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")  # no Host


def test_too_many_connections_and_requests(models: dict[str, weft.Model]):
    with serving({"reader": models["reader"]}, ServiceLimits(connections=3, header_seconds=60)) as running:
        idle = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(3)]
        for one in idle:  # all of them are with the server once they have had an answer
            one.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(10).startswith(b"HTTP/1.1 2")
        assert exchange(running.port).startswith(b"HTTP/1.1 503")
        for one in idle:
            one.close()
    with serving({"reader": models["reader"]}, ServiceLimits(requests=0)) as running:
        answer = running.get("/health")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_bodies_of_all_requests_are_limited_together(models: dict[str, weft.Model]):
    with serving({"reader": models["reader"]}, ServiceLimits(all_body_bytes=100)) as running:
        for _ in range(3):  # what was held is given back
            assert problem(running.post("/tokenize", {"inputs": "a" * 200}), 429)["code"] == "overloaded"
            assert running.post("/tokenize", {"inputs": "a"}).status_code == 200


def test_keys_are_needed_where_others_can_reach_it(tmp_path: Path):
    for host in ("0.0.0.0", "192.168.1.4", "::", "myhost"):
        with pytest.raises(InputError, match="--api-key-file"):
            Security.of(host)
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    outside = Security.of("0.0.0.0", keys)
    assert outside.knows_host("10.0.0.7:8000")
    assert not outside.knows_host("evil.example")
    assert Security.of("0.0.0.0", keys, ["*"]).knows_host("evil.example")
    for content in ("", "# only this\n", "short", "a key with spaces in it"):
        keys.write_text(content)
        with pytest.raises(InputError, match="key"):
            read_keys(keys)
    with pytest.raises(InputError, match="does not exist"):
        read_keys(tmp_path / "nothing")
    assert [host_name(one) for one in ("A.b:80", "[::1]:80", "::1", "x:y")] == ["a.b", "::1", "::1", "x:y"]
