"""The pages in a browser that can reach nothing else: phone and desktop, light and dark, both languages."""

import re
import shutil

import pytest

from weft.theory.book import write_guide
from weft.theory.chapters import CHAPTER_TITLES, written_chapters
from weft.theory.entry import LANGUAGES

CHROMIUM = shutil.which("chromium")
PHONE, DESKTOP = (390, 844), (1440, 900)
SCRIPT_HAS_RUN = "html.scripted"

LEAST_HEIGHT = """parts => Math.min(99, ...[...document.querySelectorAll(`article:not([hidden]) ${parts}`)].map(
part => part.getBoundingClientRect().height))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return {file.stem: file for file in write_guide(tmp_path_factory.mktemp("guide"))}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_fetched_from_elsewhere(pages, language):
    text = pages[language].read_text("utf-8")
    addresses = re.findall(r"""(?:src|href)=["']?([^"'\s>]+)|url\(["']?([^"')]+)|@import""", text)
    found = {address for pair in addresses for address in pair if address}
    assert {one for one in found if not one.startswith(("#", "data:font", "en.html", "zh.html"))} == set()
    assert "**" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)  # emphasis that Markdown did not see


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_link_inside_the_page_leads_somewhere(pages, language):
    text = pages[language].read_text("utf-8")
    anchors = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors


def watch(page):
    """A list that gets every request that would leave the file, and every error of a script."""
    faults = []

    def look(route):
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            faults.append(route.request.url)
            route.abort()

    page.route("**/*", look)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    return faults


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("size", "theme"), [(PHONE, "dark"), (DESKTOP, "light")])
def test_chapters_fit_the_screen(pages, browser, size, theme):
    """No request leaves the file, nothing is wider than the screen, formulas have their size."""
    for language, file in pages.items():
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        faults = watch(page)
        for slug in written_chapters():
            page.goto(f"{file.as_uri()}#{slug}")
            page.wait_for_selector(SCRIPT_HAS_RUN)
            assert page.locator("article:visible h1").inner_text() == CHAPTER_TITLES[slug].of(language)
            assert page.evaluate("document.documentElement.scrollWidth") == size[0]
            assert page.evaluate(LEAST_HEIGHT, ".formula math") > 9
            assert page.evaluate(LEAST_HEIGHT, "figure svg text") > 9, "text of a picture is too small"
        assert faults == []
        page.close()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_search_finds_a_word_in_another_chapter(pages, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{pages['en'].as_uri()}#learning")
    page.get_by_role("searchbox").fill("grouped-query attention")
    page.locator("#results a").first.click()
    page.wait_for_selector(".flash")
    assert page.locator("article:visible h1").inner_text() == "Attention"
    page.locator("nav .other").click()
    page.wait_for_selector(f"{SCRIPT_HAS_RUN}[lang=zh-CN]")
    page.locator("article:visible h1", has_text="注意力").wait_for()
    page.go_back()
    page.wait_for_selector(f"{SCRIPT_HAS_RUN}[lang=en]")
    page.locator("article:visible .production a").first.click()
    page.locator("#source-model-attention-" + page.url.rpartition("-")[2]).wait_for()
    page.close()
