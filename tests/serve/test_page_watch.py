"""Watch in a browser: a run on its way, stopped and resumed; runs over each other; links, languages, themes, widths."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browsing import DESKTOP, PHONE, Visit, needs_browser, open_browser, serious_faults, visit

from watching import Watching, line, make_run, watching, write_lock, write_pretended_weft
from weft.page import page as report_page
from weft.train.report import write_run_report
from weft.watch.finding import folder_id

pytestmark = needs_browser
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\u202eabc"
LOG = "2026-01-01 10:00:00 step {0}/100  loss 3.0000  12,345 tokens/s  {0}% of the matmul peak  0:10 left\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in a setting, one of them running; a diverged one; one whose every text is hostile."""
    folder = tmp_path_factory.mktemp("watch") / "runs"
    for name, power, wide in (("small", 0.3, 32), ("wide", 0.4, 64)):
        rows = [
            line(
                step,
                9 / step**power,
                **({"validation_loss": 9.1 / step**power, "sample": f"At {step}"} if step % 20 == 0 else {}),
            )
            for step in range(1, 81)
        ]
        made = make_run(folder / name, "".join(rows))
        recipe = made / "recipe.yml"
        recipe.write_text(recipe.read_text().replace("width: 32", f"width: {wide}"))
        (made / "train.log").write_text("".join(LOG.format(step) for step in range(1, 81)))
        write_run_report(made)
    write_lock(folder / "wide")
    (folder / "books").mkdir()
    (folder / "books/weft.json").write_text(json.dumps({"kind": "corpus", "files": {"train.jsonl": {"bytes": 1234}}}))
    (folder / "books/report.html").write_bytes(report_page("books", ["<h1>Books</h1>"]))
    other = make_run(folder / "nan", line(1) + line(2, float("nan"))) / "recipe.yml"
    other.write_text(other.read_text() + "tokenizer: {kind: char}\n")
    evil = make_run(
        folder / EVIL.replace("/", "_"), "".join(line(step, sample=EVIL) for step in (1, 2, 3)) + "garbage\n"
    )
    (evil / "train.log").write_bytes(EVIL.encode() + b"\0\xff\n" + b"x" * 100_000 + b"\n")
    (evil / "recipe.yml").write_text(json.dumps({"name": EVIL, EVIL: {"a": EVIL}}))
    (evil / "report.html").write_text(f"<!doctype html><head></head><h1>Evil</h1>{EVIL}")
    return folder


@pytest.fixture(scope="module")
def watched(runs: Path) -> Iterator[Watching]:
    with watching(runs) as found:
        yield found


def link_to(*names: str, **values: Any) -> str:
    query = "&".join(f"{name}={json.dumps(value)}" for name, value in values.items())
    return f"/watch/{','.join(map(folder_id, names))}{'?' + query if query else ''}"


def see_charts(seen: Visit, charts: int = 2) -> None:
    seen.page.wait_for_function(f"() => document.querySelectorAll('.u-over').length >= {charts}")


def tile(page: Any, title: str) -> str:
    return page.locator(".tile", has_text=title).locator("b").inner_text()


def test_a_run_is_watched_stopped_and_resumed_to_its_end(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("weft.watch.watcher._FIND_SECONDS", 0.1)
    monkeypatch.setenv("PYTHONPATH", str(write_pretended_weft(tmp_path / "pretended")))
    folder = tmp_path / "runs"
    folder.mkdir()
    with watching(folder, allow_control=True) as service, visit(browser, service.address) as seen:
        page = seen.page
        page.get_by_text("There are no runs in").wait_for()
        process = subprocess.Popen([sys.executable, "-m", "weft", "pretrain", make_run(folder / "live", steps=1500)])
        page.get_by_role("button", name="Stop", exact=True).wait_for()  # it was found, and is running
        see_charts(seen, 1)
        first = "() => Number(document.querySelector('.tile b')?.textContent.replace(',', '')) "
        page.wait_for_function(first + "> 1")
        at = page.evaluate(first)
        page.wait_for_function(f"{first} > {at}")  # it goes on by itself
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_text("as with Ctrl-C").wait_for()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        process.communicate()
        assert process.returncode == 130
        page.locator(".state", has_text="Stopped").wait_for()
        resume = page.get_by_role("button", name="Resume", exact=True)
        assert resume.evaluate("one => one === document.activeElement")  # it was Stop, which was pressed
        resume.click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        page.locator(".state", has_text="Finished").wait_for()
        assert tile(page, "of 1,500 steps") == "1,500"
        assert page.locator(".control button").filter(visible=True).count() == 0
        seen.check()


def test_runs_are_compared_and_a_link_reproduces_what_is_seen(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("wide")) as seen:
        page = seen.page
        see_charts(seen)
        page.get_by_text("Tick several to compare them.").wait_for()
        page.get_by_label("Compare small").check()
        page.locator(".legend tbody tr").nth(1).wait_for()
        assert page.get_by_text("Tick several").count() == 0
        page.get_by_label("x axis").select_option("tokens")
        page.get_by_label("Log scale").check()
        page.get_by_role("tab", name="Settings").click()
        rows = page.locator(".settings tbody tr")
        rows.nth(1).wait_for()
        assert rows.all_inner_texts() == ["model.width\t64\t32", "name\twide\tsmall"]
        assert page.get_by_text("the losses cannot be compared").count() == 0
        page.get_by_role("tab", name="Curves").click()
        see_charts(seen)
        page.wait_for_url("**tokens**")
        link = page.url.partition("#")[2]
        assert link.startswith(f"/watch/{folder_id('wide')}%2C{folder_id('small')}?")
        page.reload()
        check_same_view(seen)
        seen.check()
    with visit(browser, watched.address, link) as other:  # another browser
        check_same_view(other)
        other.check()


def test_losses_of_other_tokens_are_not_to_be_compared(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("small", "nan")) as seen:
        seen.page.get_by_text("the losses cannot be compared").wait_for()
        seen.check()


def check_same_view(seen: Visit) -> None:
    see_charts(seen)
    assert seen.page.get_by_label("x axis").input_value() == "tokens"
    assert seen.page.get_by_label("Log scale").is_checked()
    assert seen.page.locator(".legend tbody bdi").all_inner_texts() == ["wide", "small"]


def test_charts_are_zoomed_read_and_heard(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("wide", "small")) as seen:
        page = seen.page
        see_charts(seen)
        box = page.locator(".u-over").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
        page.mouse.up()
        shown = page.locator(".zoom small")
        page.wait_for_function("() => /^\\d+ – \\d+$/.test(document.querySelector('.zoom small').textContent)")
        low, high = map(int, shown.inner_text().split(" – "))
        assert 15 <= low <= 25 < 35 <= high <= 45
        page.locator(".plot").first.focus()
        page.keyboard.press("Escape")
        page.wait_for_function("() => document.querySelector('.zoom small').textContent.startsWith('Drag')")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => document.querySelector('.readout').textContent.startsWith('Step')")
        assert page.locator(".readout").first.locator(".run-colour").count() == 2
        page.get_by_text("As a table").first.click()
        last = page.locator(".chart table tbody tr").last
        assert last.inner_text().split("\t") == ["80", f"{9 / 80**0.4:.4g}", f"{9 / 80**0.3:.4g}"]
        seen.check()


def test_samples_change_with_the_slider_and_the_plan_and_log_are_shown(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("wide", tab="samples")) as seen:
        page = seen.page
        page.get_by_text("At 80", exact=True).wait_for()
        page.locator(".sample input").focus()
        page.keyboard.press("Home")
        page.get_by_text("At 20", exact=True).wait_for()
        page.get_by_role("tab", name="Plan").click()
        page.get_by_role("row", name="steps 100 80 100").wait_for()
        page.get_by_role("tab", name="Log").click()
        page.get_by_text("step 80/100").wait_for()
        assert page.get_by_role("button", name="Stop", exact=True).count() == 0  # not allowed, so not offered
        page.get_by_role("tab", name="Report").click()
        frame = page.frame_locator("iframe.report")
        frame.locator("svg polyline").first.wait_for()
        frame.locator("svg").first.hover()
        assert re.match(r"step [\d,]+ +training \d", frame.locator("svg .values").first.text_content())
        seen.check()


def test_other_folders_show_their_facts_and_report(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("small")) as seen:
        see_charts(seen)
        seen.page.get_by_text("Other folders (1)").click()
        seen.page.get_by_role("link", name="books corpus").click()
        seen.page.get_by_role("row", name="train.jsonl 1.23 kB").wait_for()
        seen.page.frame_locator("iframe.report").get_by_role("heading", name="Books").wait_for()
        seen.page.go_back()
        see_charts(seen)
        seen.check()


def test_hostile_names_samples_logs_and_reports_are_shown_as_text(browser: Any, watched: Watching):
    name = EVIL.replace("/", "_")
    blocked = ("Refused to execute", "violates the following Content Security Policy", "Blocked script execution")
    with visit(browser, watched.address, link_to(name), expected_errors=(*blocked, "404")) as seen:
        page = seen.page
        see_charts(seen)
        page.get_by_text("1 lines of metrics.jsonl").wait_for()
        for tab, part in (("Settings", "onerror"), ("Samples", "<script>"), ("Log", "<script>"), ("Plan", "onerror")):
            page.get_by_role("tab", name=tab).click()
            page.locator(".seen .card").last.get_by_text(part).first.wait_for()
        page.get_by_role("tab", name="Report").click()
        frame = page.frame_locator("iframe.report")
        frame.get_by_text("Evil").wait_for()
        assert page.evaluate("() => window.hacked") is None
        assert frame.locator("body").evaluate("() => window.hacked") is None
        assert not page.locator("main img, main script").count()
        assert not seen.errors
        assert not seen.foreign


def test_a_service_that_is_gone_is_said_and_found_again(browser: Any, tmp_path: Path):
    folder = make_run(tmp_path / "run", line(1) + line(2))
    (folder / "train.log").write_text("All is well.\n")
    with (
        watching(tmp_path) as service,
        visit(browser, service.address, link_to("run"), expected_errors=("ERR_",)) as seen,
    ):
        page = seen.page
        see_charts(seen)
        service.stop()
        gone = page.get_by_text("The service has not answered")
        gone.wait_for()
        assert page.locator(".u-over").count()  # what was seen stays
        page.get_by_role("tab", name="Log").click()
        page.get_by_text("The service does not answer").wait_for()
        (folder / "metrics.jsonl").write_text("".join(line(step) for step in range(1, 8)))
        with watching(tmp_path, port=int(service.address.rpartition(":")[2])):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it asks at once
            gone.wait_for(state="detached")
            page.get_by_text("All is well.").wait_for()
            assert tile(page, "of 100 steps") == "7"
            page.get_by_role("tab", name="Curves").click()
            see_charts(seen)
            page.get_by_text("As a table").first.click()
            rows = page.locator(".chart table tbody tr")
            rows.nth(6).wait_for()
            assert rows.count() == 7
            page.close()


@pytest.mark.parametrize("storage", ["forbidden", "full"])
def test_the_page_works_where_nothing_can_be_stored(browser: Any, watched: Watching, storage: str):
    forbidden = "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, "
    forbidden += "{ get() { throw new DOMException('', 'SecurityError'); } });"
    full = "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); };"
    before = {"forbidden": forbidden, "full": full}[storage]
    with visit(browser, watched.address, link_to("wide"), before=before) as seen:
        page = seen.page
        see_charts(seen)
        page.get_by_label("Log scale").check()
        page.get_by_label("Theme").select_option("dark")
        page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
        page.get_by_label("Language").select_option("zh")
        page.get_by_role("heading", name="训练损失").wait_for()
        seen.check()


HOSTILE = {
    "x": ["constructor", "tokens<", 5, None],
    "tab": ["__proto__", "", []],
    "smooth": [5, -1, 1e999, "x"],
    "zoom": ["ab", [5, 1], [-1e300, 1e300], [0, None], {"0": 1, "1": 2}, [[], {}], 7],
    "more": [["<b>"] * 3, [1, None, {}], [f"key{number}" for number in range(99)], "loss", ["a,b"]],
    "order": ["toString", "__proto__", 3],
    "at": ["x", {}, -1],
    "run": [{}, "x"],
    "log": ["x", 1],
}


def test_a_link_with_values_that_make_no_sense_shows_what_does(browser: Any, watched: Watching):
    with visit(browser, watched.address) as seen:
        page = seen.page
        for name, values in HOSTILE.items():
            for value in values:
                page.evaluate("link => { location.hash = link; }", link_to("wide", "small", **{name: value}))
                page.locator("[role=tab][aria-selected=true]").wait_for()
                see_charts(seen)
                assert not page.locator(".error").count(), (name, value)
        for link in (
            "/watch/%E0%A4%A",
            "/watch/" + "0" * 16,
            "/%00/x?y",
            "/watch?=&&%",
            "watch/" + ",".join("a" * 999),
        ):
            page.evaluate("link => { location.hash = link; }", link)
            page.locator(".run-list").wait_for()
        seen.check()


def test_zoom_ends_where_nothing_is_left_to_see(browser: Any, watched: Watching):
    with visit(browser, watched.address, link_to("wide", x="seconds")) as seen:
        page = seen.page
        see_charts(seen)
        for _ in range(40):
            page.get_by_label("Zoom in").click()
        page.get_by_role("button", name="Show all").click()
        page.get_by_label("Zoom in").click()
        for _ in range(9):
            page.get_by_label("Later").click()
        assert page.locator(".zoom small").inner_text() == "4 s – 8 s"  # moved to the end, as wide as before
        assert not page.locator(".error").count()
        seen.check()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize(("language", "words"), [("en-US", "Training loss"), ("zh-CN", "训练损失")], ids=["en", "zh"])
def test_it_fits_and_can_be_used_by_everybody(browser: Any, watched: Watching, size: tuple, language: str, words: str):
    with visit(browser, watched.address, link_to("wide", "small"), size=size, language=language) as seen:
        page = seen.page
        see_charts(seen)
        page.get_by_role("heading", name=words).wait_for()
        for tab in ("curves", "plan"):
            page.locator(f"[data-tab={tab}]").click()
            page.locator(".u-over, .card table caption, .card + .card table").first.wait_for()
            assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
            assert not seen.foreign
            assert not seen.errors
            assert serious_faults(page, AXE) == []
            seen.errors.clear()  # of axe, which inserts styles
