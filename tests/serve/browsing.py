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
    foreign: list[str] = field(default_factory=list)  # requests to other origins
    errors: list[str] = field(default_factory=list)  # of the console and of scripts

    def check(self) -> None:
        assert not self.foreign, self.foreign
        assert not self.errors, self.errors


@contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        # No other machine can be reached. To stop requests one by one would take longer than the page takes to load.
        rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rules])
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
    before: str = "",
) -> Iterator[Visit]:
    """`link`: the part of the address after #. `expected_errors`: parts of console messages that are allowed, such as
    the status of a request that is meant to fail. `before`: a script that runs before those of the page.
    """
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, locale=language, color_scheme=theme, reduced_motion="reduce"
    )
    context.add_init_script(before)
    page = context.new_page()
    found = Visit(page)

    def look(request: Any) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            found.foreign.append(request.url)

    def note(message: str) -> None:
        if not any(part in message for part in expected_errors):
            found.errors.append(message)

    page.on("request", look)
    page.on("console", lambda message: note(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: note(str(error)))
    try:
        page.goto(f"{address}/{'#' + link if link else ''}")
        yield found
    finally:
        context.close()


def serious_faults(page: Any, axe: str) -> list[str]:
    """axe-core's findings of serious and critical impact in both themes. `axe`: the program's text. Between themes only
    colours differ, so only those are looked at again.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe)
    found = []
    for theme, rules in (("light", "undefined"), ("dark", "['color-contrast']")):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
        options = f"{{ runOnly: {rules}, resultTypes: ['violations'] }}"
        found += page.evaluate(f"async () => (await axe.run({options})).violations")
    return [
        f"{one['id']}: {one['help']} ({[node['html'][:120] for node in one['nodes']][:3]})"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
