"""Chromium on the page: no request leaves the service, and nothing is written to the console as an error."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
PHONE, DESKTOP = (390, 844), (1440, 900)


@dataclass
class Visit:
    """A tab, and what went wrong in it."""

    page: Any
    foreign: list[str] = field(default_factory=list)  # requests to other origins; all are blocked
    errors: list[str] = field(default_factory=list)  # of the console and of scripts
    weight: dict[str, int] = field(default_factory=dict)  # bytes of the page's own files

    def check(self) -> None:
        assert not self.foreign, self.foreign
        assert not self.errors, self.errors


@contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Any,
    address: str,
    link: str = "",
    *,
    size: tuple[int, int] = DESKTOP,
    language: str = "en-US",
    theme: str = "light",
    expected_errors: tuple[str, ...] = (),
) -> Iterator[Visit]:
    """`link`: the part of the address after #. `expected_errors`: parts of console messages that are allowed, such as
    the status of a request that is meant to fail.
    """
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, locale=language, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    found = Visit(page)

    def route(one: Any) -> None:
        if one.request.url.startswith((address, "data:", "blob:")):
            one.continue_()
        else:
            found.foreign.append(one.request.url)
            one.abort()

    def note(message: str) -> None:
        if not any(part in message for part in expected_errors):
            found.errors.append(message)

    context.route("**/*", route)
    page.on("console", lambda message: note(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: note(str(error)))
    page.on("response", lambda answer: _weigh(found, answer))
    try:
        page.goto(f"{address}/{'#' + link if link else ''}")
        yield found
    finally:
        context.close()


def _weigh(found: Visit, answer: Any) -> None:
    if "/page/" in answer.url and answer.status == 200:
        found.weight[answer.url] = int(answer.headers.get("content-length", 0))


def serious_faults(page: Any, axe: str) -> list[str]:
    """axe-core's findings of serious and critical impact. `axe`: the program's text."""
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {one['help']} ({[node['html'][:120] for node in one['nodes']][:3]})"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
