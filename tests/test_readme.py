"""Every command and program in the README runs; the Chinese README has the same ones."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.recipe.file import read_recipe

ROOT = Path(__file__).parent.parent
ENGLISH, CHINESE = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md"))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder where the README's paths exist, with two of the quickstart's models after a few steps."""
    place = tmp_path_factory.mktemp("readme")
    for name in ("recipes", "examples"):
        shutil.copytree(ROOT / name, place / name)
    settings = ["pretrain.budget=2 steps", "model.layers=1", "model.width=32", "model.heads=2"]
    run("weft", "pretrain", "recipes/quickstart-bert.yml", *settings, cwd=place)
    run("weft", "pretrain", "recipes/quickstart.yml", *settings, "model.family=qwen3", cwd=place)
    return place


def run(name, *arguments, cwd):
    done = subprocess.run([sys.executable, "-m", name, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "printed"), zip(blocks(ENGLISH, "python"), (["a very good man.", "(2, 32) "], ["'room'"]), strict=True)
)
def test_python_runs(code, printed, place):
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in printed)


@pytest.mark.parametrize("text", blocks(ENGLISH, "yaml"))
def test_recipes_are_recipes(text, tmp_path):
    (tmp_path / "recipe.yml").write_text(text)
    assert read_recipe(tmp_path / "recipe.yml").pretrain.budget == "20m"


COMMANDS = [line for block in blocks(ENGLISH, "sh") for line in block.strip().split("\n")]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("weft ")])
def test_a_command_runs(line, place):
    command = line.replace("weft ", f"{sys.executable} -m weft ", 1)
    done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_other_command_is_a_make_target():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    others = [line.split("#")[0].split() for line in COMMANDS if not line.startswith("weft ")]
    assert others
    assert all(make == "make" and target in targets for make, target in others)


def test_the_chinese_readme_shows_the_same_code_and_figures():
    english, chinese = (re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL) for text in (ENGLISH, CHINESE))
    assert english == chinese
    assert re.findall(r"\d\.\d+×", CHINESE) == re.findall(r"\d\.\d+×", ENGLISH)


def test_links_lead_somewhere():
    for text in (ENGLISH, CHINESE):
        for link in re.findall(r"\]\(([^)]+)\)", text):
            assert (ROOT / link).exists(), link


def test_figures_are_those_of_the_benchmarks():
    results = (ROOT / "benchmarks/RESULTS.md").read_text()
    figures = re.findall(r"\*\*(\d\.\d+)×\*\*", ENGLISH)
    assert figures
    assert set(figures) <= set(re.findall(r"\*\*(\d\.\d+)×\*\*", results))


@contextmanager
def started(command, place):
    """The address of a service whose command is in the README, at a free port."""
    arguments = shlex.split(command, comments=True)[1:]
    line = [sys.executable, "-m", "weft", *arguments, "--port", "0", "--json"]
    with subprocess.Popen(line, cwd=place, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.send_signal(signal.SIGTERM)
    assert server.returncode == 0


def test_the_service_of_the_readme_answers(place):
    """The first block marked bash, and the one marked py."""
    (shell, _), (code,) = blocks(ENGLISH, "bash"), blocks(ENGLISH, "py")
    command, request = shell.strip().split("\n")
    with started(command, place) as address:
        here = "http://127.0.0.1:8000"
        body = shlex.split(request.replace(here, address))
        sent = urllib.request.Request(body[1], body[-1].encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(sent) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] > 0
        done = subprocess.run([sys.executable, "-c", code.replace(here, address)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("2\n")


@pytest.mark.parametrize("command", blocks(ENGLISH, "bash")[1].strip().split("\n"))
def test_the_page_of_the_readme_is_there(command, place):
    with started(command, place) as address:
        asked = urllib.request.Request(address, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked) as page, urllib.request.urlopen(f"{address}/runs") as runs:
            assert b"/page/app.js" in page.read()
            assert {run["name"] for run in json.load(runs)["runs"]} >= {"quickstart", "quickstart-bert"}
