"""What `weft export` says to do next: it works with what is installed here."""

import importlib.util
import json
import shlex
import shutil
from types import SimpleNamespace

import pytest

from weft.commands.export import shown_facts, steps_here

FILE = "it's out/model.gguf"
STEP = f"llama-server -m {shlex.quote(FILE)}"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    names: set[str] = set()
    monkeypatch.setattr(shutil, "which", lambda name: name if name in names else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace() if name in names else None)
    return names


def test_llama_server_is_used_where_it_is_and_otherwise_its_python_package(installed: set[str]):
    (hint, command), (_, question) = steps_here(STEP)
    assert command == STEP and "https://github.com/ggml-org/llama.cpp" in hint
    assert json.loads(shlex.split(question)[-1])["prompt"]
    installed.add("xllamacpp")
    (_, command), (_, question) = steps_here(f"{STEP} --embedding")
    python, option, code = shlex.split(command)
    compile(code, "next step", "exec")
    assert (python, option) == ("python", "-c") and json.dumps(FILE) in code and "embedding = True" in code
    assert "/embedding" in question
    installed.add("llama-server")
    assert steps_here(STEP)[0] == ("", STEP)


def test_other_steps_stay_as_they_are(installed: set[str]):
    assert steps_here("python -c 'print(1)'") == [("", "python -c 'print(1)'")]


def test_people_are_not_told_the_comparison_twice():
    facts = {"verdict": "Runs.", "compared": {"logits": 1e-5, "notes": ["Mind this."]}}
    assert shown_facts(facts) == {"verdict": "Runs.", "compared": ["Mind this."]}
    assert shown_facts({"verdict": "Written."})["compared"] is None
