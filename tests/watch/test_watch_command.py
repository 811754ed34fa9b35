"""`weft page` from its first line to its last signal, and `weft serve` with runs beside a model."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

import weft
from random_models import make_random
from task_models import tokenizer_of
from watching import line, make_run
from weft.cli import main


def start(*words: str) -> tuple[subprocess.Popen[str], dict]:
    """The command, and the line of JSON that it prints first."""
    command = [sys.executable, "-m", "weft", *words, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())


def test_the_page_is_served_until_a_signal_comes(tmp_path: Path):
    make_run(tmp_path / "gpt", line(1))
    process, told = start("page", str(tmp_path))
    assert (told["runs"], told["control"]) == (str(tmp_path), False)
    runs = httpx.get(f"{told['address']}/runs").json()
    assert [run["name"] for run in runs["runs"]] == ["gpt"]
    assert "text/html" in httpx.get(told["address"], headers={"accept": "text/html"}).headers["content-type"]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0


def test_runs_are_watched_beside_a_model(tmp_path: Path):
    make_run(tmp_path / "runs/gpt", line(1))
    made: weft.Model = make_random("gpt2", vocabulary=500, positions=64, tokenizer=tokenizer_of("gpt2"))
    made.save(tmp_path / "story")
    process, told = start("serve", str(tmp_path / "story"), "--runs", str(tmp_path / "runs"))
    facts = httpx.get(f"{told['address']}/page.json").json()
    assert (facts["models"], facts["runs"]) == (["story"], True)
    assert httpx.get(f"{told['address']}/runs").json()["runs"][0]["name"] == "gpt"
    assert httpx.get(f"{told['address']}/v1/models").json()["data"][0]["id"] == "story"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["page", "nowhere"], "nowhere does not exist"),
        (["page", ".", "--host", "0.0.0.0"], "a key is needed"),
        (["serve", "x", "--allow-control"], "goes with --runs"),
        (["serve", "x", "--runs", "nowhere"], "nowhere does not exist"),
    ],
)
def test_what_the_user_got_wrong_is_said(
    words: list[str], part: str, monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["weft", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert part in capsys.readouterr().err
