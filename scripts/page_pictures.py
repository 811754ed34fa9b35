"""The pictures of the page in the documentation, taken with Chromium after `make quickstart`.

python scripts/page_pictures.py        # writes docs/page.png and docs/page-watch.png
"""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
MODELS = [f"runs/{name}/model" for name in ("austen", "quickstart", "quickstart-bert")]
WRITE = "#/try/austen/write?a=%7B%22temperature%22%3A0.7%2C%22seed%22%3A4%2C%22max_tokens%22%3A90%7D&tint=true"


def write_text(page: Page) -> None:
    page.get_by_role("textbox", name="Prompt").fill("She was")
    page.locator("button.primary").click()
    page.wait_for_selector(".facts", timeout=30_000)
    page.locator(".tokens-of [role=button]").nth(6).hover()
    page.wait_for_selector(".inspector")


def draw_curves(page: Page) -> None:
    page.wait_for_selector("canvas")
    page.wait_for_timeout(2000)  # until the sparklines are there as well


def take(browser: Any, address: str, link: str, file: Path, prepare: Any) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 760}, locale="en-US", color_scheme="light")
    page.goto(f"{address}/{link}")
    page.wait_for_selector("h2")
    prepare(page)
    page.screenshot(path=str(file))
    page.close()


def main() -> None:
    command = [sys.executable, "-m", "weft", "serve", *MODELS, "--runs", "runs", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            with sync_playwright() as tools:
                browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                take(browser, address, WRITE, ROOT / "docs/page.png", write_text)
                take(browser, address, "#/watch", ROOT / "docs/page-watch.png", draw_curves)
                browser.close()
        finally:
            server.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
