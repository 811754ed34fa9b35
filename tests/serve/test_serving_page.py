"""Every request in docs/serving.md is answered by a service with small models of these names."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from reading_models import MODELS, small_model
from running import Running, serving

import weft

PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def requests() -> list[str]:
    """The curl commands, each on one line."""
    joined = "\n".join(blocks("sh")).replace("\\\n", " ")
    return [command.strip() for command in re.split(r"^(?=curl )", joined, flags=re.MULTILINE) if "curl" in command[:5]]


@pytest.fixture(scope="module")
def service(models: dict[str, weft.Model]) -> Iterator[Running]:
    named = {"story": models["story"], "talk": models["talk"], "bert": small_model("bert")}
    tasks = ("classify", "pair", "similarity", "tag", "answer", "intent", "translate")
    assert set(tasks) <= set(MODELS)
    with serving({**named, **{task: small_model(task) for task in tasks}}) as found:
        yield found


@pytest.mark.parametrize("command", requests())
def test_a_request_is_answered(command: str, service: Running):
    words = shlex.split(command.replace(ADDRESS, service.address))
    address = next(word for word in words if word.startswith("http"))
    if "-d" in words:
        headers = {"Content-Type": "application/json"}
        answer = service.client.post(address, content=words[words.index("-d") + 1], headers=headers)
    else:
        answer = service.client.get(address)
    assert answer.status_code == 200, answer.text
    assert "x-weft-ignored" not in answer.headers


def test_the_openai_program_runs(service: Running):
    (code,) = (block for block in blocks("python") if "openai" in block)
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, service.address)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"2\n( yes| no)\n$", done.stdout)
