"""The Try room in a browser: a panel opened by its link, run, and read."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from browsing import DESKTOP, Visit, needs_browser, open_browser, visit
from reading_models import small_model
from running import Running, serving

import weft

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
MODELS = ("classify", "several", "pair", "similarity", "tag", "pos", "answer", "intent", "translate", "reply", "bert")
RUN = ".panel .primary"
REFUSED = "Failed to load resource"  # what Chromium's console says of a request that the service refuses


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def tried(models: dict[str, weft.Model]) -> Iterator[Running]:
    """A service with a model of every task; story writes, talk has a chat template."""
    with serving(
        {"story": small_model("gpt2"), "talk": models["talk"], **{name: small_model(name) for name in MODELS}}
    ) as found:
        yield found


def try_link(model: str, panel: str, **values: Any) -> str:
    """The part of the address after #."""
    given = urlencode({name: json.dumps(value, ensure_ascii=False) for name, value in values.items()})
    return f"/try/{quote(model, safe='')}/{panel}" + (f"?{given}" if given else "")


@contextmanager
def opened(
    browser: Any, running: Running, model: str, panel: str, values: dict[str, Any] | None = None, **options: Any
) -> Iterator[Visit]:
    """A panel whose fields have these values. In the end nothing may have gone wrong in the tab."""
    options = {"size": DESKTOP, **options}
    with visit(browser, running.address, try_link(model, panel, **(values or {})), **options) as tab:
        expect(tab.page.locator(RUN).first).to_be_visible()
        yield tab
        assert tab.page.evaluate("window.__pwned") is None
        tab.check()


def run(page: Any, answer: str = ".result > *") -> None:
    """Press the panel's button, and wait until the answer is there and nothing more is written."""
    page.locator(RUN).first.click()
    expect(page.locator(answer).first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def labels_of(page: Any, within: str = ".result") -> list[str]:
    return page.locator(f"{within} .bar-label").all_inner_texts()


def shown_code(page: Any) -> str:
    return page.locator(".code pre").last.inner_text()


def has_overflow(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def bash(command: str, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def arguments_of(command: str) -> list[str]:
    """The words of a command as a shell gives them to the program."""
    program = f"{sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
    assert command.startswith("weft ")
    return json.loads(bash(program + command.removeprefix("weft")))


def printed_by(program: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a program of the page prints, run in this process, with the model's folder in it."""
    capsys.readouterr()
    exec(compile(program.replace('"FOLDER"', repr(str(folder))), "program", "exec"), {})
    return capsys.readouterr().out


assert needs_browser  # for the tests
