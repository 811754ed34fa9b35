"""The Try room with files of rows, with texts and names made to break a page, and with a service that refuses."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, visit
from reading_models import LENGTH, SENTENCES, small_model
from running import Running, serving
from trying import (
    REFUSED,
    RUN,
    browser,
    expect,
    has_overflow,
    labels_of,
    needs_browser,
    opened,
    run,
    tried,
    try_link,
)

import weft
from task_models import make, save
from weft.serve.errors import Overloaded
from weft.tasks.classify import Classify
from weft.tasks.tag import Tag

pytestmark = needs_browser
assert browser and tried  # fixtures
SCRIPT = "<img src=x onerror=window.__pwned=1>"
ROWS = [('A cat, "sat".', "A feline\nrested."), ("", "no"), ("爱丽丝 🐇", SCRIPT), ("last", "one")]


def choose(page: Any, name: str, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "text/plain", "buffer": data})
    page.locator("details.more").last.locator("summary").click()


def start(page: Any) -> None:
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_contain_text("Done")


def saved(page: Any, ending: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Save as .{ending}").click()
    return Path(download.value.path()).read_text("utf-8-sig")


def as_csv(rows: list[tuple[str, str]]) -> str:
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return "\r\n".join(["premise,hypothesis", *lines, ""])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_every_row_of_a_table_has_the_services_answer_or_its_sentence(browser, tried, kind):
    rows = [row for row in ROWS if kind != "tsv" or "\n" not in row[1]]
    content = {
        "csv": as_csv(rows),
        "tsv": "".join(f"{first}\t{second}\n" for first, second in [("premise", "hypothesis"), *rows]),
        "jsonl": "".join(json.dumps({"hypothesis": second, "premise": first}) + "\n" for first, second in rows),
    }[kind]
    expected = []
    for first, second in rows:
        answer = tried.post("/v1/tasks/pair", {"model": "pair", "inputs": [{"text": first, "text_pair": second}]})
        expected.append(answer.json())
    with opened(browser, tried, "pair", "pair", expected_errors=(REFUSED,)) as tab:
        page = tab.page
        choose(page, f"rows.{kind}", content + ("not json\n" if kind == "jsonl" else ""))
        expect(page.get_by_label("Second text is in column")).to_have_value("hypothesis")
        start(page)
        found = [json.loads(line) for line in saved(page, "jsonl").splitlines()]
        for one, right in zip(found, expected, strict=False):
            if isinstance(right, list):
                assert [label["label"] for label in one["answer"]] == [label["label"] for label in right[0]]
                assert one["answer"][0]["score"] == pytest.approx(right[0][0]["score"], abs=1e-5)
            else:
                assert one["error"] == right["error"]["message"]
        assert [(one["input"]["premise"], one["input"]["hypothesis"]) for one in found[: len(rows)]] == rows
        assert (kind == "jsonl") == (len(found) > len(rows))
        table = list(csv.DictReader(saved(page, "csv").splitlines(keepends=True)))
        assert [line.get("label") or "" for line in table] == [
            one["answer"][0]["label"] if "answer" in one else "" for one in found
        ]
        assert [line["error"] for line in table] == [one.get("error", "") for one in found]


LINES = ["Alice was", "So she", "Down"]
PANELS = [
    ("story", "write", {"a": {"temperature": 0, "max_tokens": 4}}),
    ("reply", "chat", {"settings": {"temperature": 0, "max_tokens": 4}}),
    ("bert", "fill", {}),
    ("several", "classify", {}),
    ("tag", "tag", {}),
    ("intent", "intent", {}),
    ("translate", "translate", {}),
    ("bert", "embed", {}),
    ("story", "tokens", {}),
]


@pytest.mark.parametrize(("model", "panel", "values"), PANELS, ids=[panel for _, panel, _ in PANELS])
def test_a_file_of_lines_is_answered_on_every_panel(browser, tried, model, panel, values):
    lines = [f"{line} [MASK]" for line in LINES] if panel == "fill" else LINES
    with opened(browser, tried, model, panel, values) as tab:
        choose(tab.page, "lines.txt", "\n".join(lines))
        start(tab.page)
        found = [json.loads(line) for line in saved(tab.page, "jsonl").splitlines()]
        assert [one["input"]["text"] for one in found] == lines
        assert all(one["answer"] for one in found)
        if panel == "write":
            expected = small_model("gpt2").generate(LINES, strategy="greedy", max_new_tokens=4)
            assert [one["answer"] for one in found] == [[text] for text in expected]


def test_long_texts_of_a_file_are_cut_and_an_error_below_the_preview_is_shown(browser, tried):
    lines = ["short", "word " * 2 * LENGTH, *["x"] * 25]
    with opened(browser, tried, "classify", "classify", expected_errors=(REFUSED,)) as tab:
        choose(tab.page, "lines.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in lines) + "{}\n")
        start(tab.page)
        expect(tab.page.get_by_text("Done: 28 rows, 1 with an error")).to_be_visible()
        expect(tab.page.get_by_text("1 texts were longer than this model reads")).to_be_visible()
        expect(tab.page.get_by_text("The first error, row 28: This row has no text.")).to_be_visible()


def test_two_columns_are_matched_by_name_or_asked_for(browser, tried):
    given = [{"passage": SENTENCES[0], "id": 1, "query": "Who?"}, {"passage": SENTENCES[3], "id": 2, "query": "Where?"}]
    with opened(browser, tried, "answer", "answer") as tab:
        choose(tab.page, "q.jsonl", "".join(json.dumps(one) + "\n" for one in given))
        start(tab.page)
        found = [json.loads(line)["answer"] for line in saved(tab.page, "jsonl").splitlines()]
        inputs = [{"question": one["query"], "context": one["passage"]} for one in given]
        expected = tried.post("/v1/tasks/answer", {"model": "answer", "inputs": inputs}).json()
        assert [one["answer"] for one in found] == [one["answer"] for one in expected]
    with opened(browser, tried, "similarity", "similarity") as tab:
        choose(tab.page, "one.txt", "only\nlines\n")
        expect(tab.page.locator(".error")).to_contain_text("needs 2 columns")
        assert tab.page.get_by_role("button", name="Start").count() == 0


def test_a_file_is_dropped_on_the_panel_in_another_encoding(browser, tried):
    text = "文本\n很好\n"
    with opened(browser, tried, "classify", "classify") as tab:
        tab.page.locator(".panel").evaluate(
            """(panel, bytes) => {
              const data = new DataTransfer();
              data.items.add(new File([new Uint8Array(bytes)], "excel.csv"));
              for (const type of ["dragover", "drop"])
                panel.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
            }""",
            list(text.encode("gb18030")),
        )
        expect(tab.page.get_by_label("Text is in column")).to_have_value("文本")
        start(tab.page)
        assert json.loads(saved(tab.page, "jsonl"))["input"] == {"文本": "很好"}


def test_a_large_file_does_not_stop_the_page(browser, tried, tmp_path):
    file = tmp_path / "large.csv"
    line = "id,text\n" + "".join(f"{number},Alice was beginning to get very tired.\n" for number in range(25_000))
    file.write_text(line * 48, "utf-8")
    assert file.stat().st_size > 50_000_000
    with opened(browser, tried, "classify", "classify") as tab:
        page = tab.page
        page.locator("input[type=file]").set_input_files(file)
        page.locator("details.more").last.locator("summary").click()
        expect(page.get_by_label("Text is in column")).to_have_value("text")
        page.get_by_role("button", name="Start").click()
        expect(page.locator(".rows tbody tr")).to_have_count(20)
        page.get_by_label("Text", exact=True).fill("typed meanwhile")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("status")).to_contain_text("Stopped after")
        assert len(saved(page, "jsonl").splitlines()) >= 16


NAME = f"a/b \"c\" 'd' {SCRIPT} \u202egnp.exe #?&%"
LABELS = (SCRIPT, "\u202etxet", "a\0b", "l" * 5_000)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("hostile")
    task = Classify(LABELS)
    tags = Tag(("O", f"B-{SCRIPT}", f"I-{SCRIPT}", "B-\u202ex", "I-\u202ex"), entities=True)
    models = {
        NAME: weft.load(save(task, *make(task, "bert", LENGTH), folder / "labels"), "cpu"),
        "tags": weft.load(save(tags, *make(tags, "bert", LENGTH), folder / "tags"), "cpu"),
    }
    with serving(models) as running:
        yield running


@pytest.mark.parametrize("size", [PHONE, (1440, 900)], ids=["phone", "desktop"])
def test_hostile_names_labels_and_texts_are_only_text(browser, hostile, size):
    text = f"{SCRIPT} \u202e reversed \0 <script>window.__pwned=2</script> {'w' * 3_000} {{}} ${{1}}"
    with opened(browser, hostile, NAME, "classify", {"text": text, "code": "python"}, size=size) as tab:
        page = tab.page
        run(page)
        found = hostile.post("/v1/tasks/classify", {"model": NAME, "inputs": text}).json()[0]
        shown = page.locator(".bar-label").evaluate_all("all => all.map((one) => one.textContent)")
        assert [one[:50] for one in shown] == [one["label"][:50] for one in found]
        assert NAME in page.title()
        assert page.locator(".models .model").first.evaluate("one => one.textContent").startswith(NAME)
        assert not has_overflow(page)
        page.reload()
        expect(page.get_by_label("Text", exact=True)).to_have_value(text)
        page.goto(f"{hostile.address}/#{try_link('tags', 'tag', text=text)}")
        run(page)
        assert page.locator(".marked").count() == 1
        assert not has_overflow(page)
        choose(page, f"{SCRIPT}.csv".replace("/", ""), f'"{SCRIPT}",text\n{SCRIPT},"{SCRIPT}"\n')
        start(page)
        assert not has_overflow(page)


def test_a_line_of_a_megabyte_is_cut_where_it_is_shown(browser, tried):
    with opened(browser, tried, "story", "tokens", {"code": "curl"}, expected_errors=(REFUSED,)) as tab:
        page = tab.page
        field = page.get_by_label("Text", exact=True)
        field.fill("ab" * 500_000)
        run(page, ".error")  # more tokens than a request may have
        page.reload()
        assert field.evaluate("one => one.value.length") == 1_000_000
        assert "@request.json" in page.locator(".code pre").inner_text()
        field.fill("ab " * 20_000)
        run(page)
        assert page.locator(".pieces li").count() == 2_000
        expect(page.locator(".result")).to_contain_text("more are not shown")
        assert not has_overflow(page)


def test_the_services_sentence_is_shown(browser, tried):
    values = {"prompt": "a " * 400, "a": {"beams": 2}}  # beam search cannot slide over a long prompt
    with opened(browser, tried, "story", "write", values, expected_errors=(REFUSED,)) as tab:
        run(tab.page, ".error")
        assert "tokens" in tab.page.locator(".error").inner_text()


def test_a_busy_service_asks_for_patience(browser, tried, monkeypatch):
    def refuse() -> None:
        raise Overloaded("The queue is full.", 7)

    monkeypatch.setattr(tried.service.models["bert"].reading, "check_room", refuse)
    with opened(browser, tried, "bert", "fill", expected_errors=(REFUSED,)) as tab:
        run(tab.page, ".error")
        assert "try again in 7 s" in tab.page.locator(".error").inner_text()


@pytest.mark.parametrize(
    ("model", "panel", "values"),
    [
        ("story", "write", {"a": {"max_tokens": {"toString": 1}}, "code": "__proto__"}),
        ("talk", "chat", {"messages": [{"role": {}, "content": "x"}], "settings": {"stop": {"toString": 1}}}),
        ("several", "classify", {"threshold": {"toString": 1}}),
        ("bert", "fill", {"top": {"toString": 1}}),
    ],
)
def test_a_link_that_cannot_be_shown_does_not_take_the_page(browser, tried, model, panel, values):
    with visit(browser, tried.address, try_link(model, panel, **values), expected_errors=("TypeError",)) as tab:
        page = tab.page
        expect(page.locator("main .panel, main .error").first).to_be_visible()
        if page.get_by_role("link", name="Start again").count():
            page.get_by_role("link", name="Start again").click()
        else:
            page.evaluate("location.hash = '#/'")
        expect(page.locator(RUN).first).to_be_visible()
        tab.check()


def test_an_address_that_names_no_model_says_so(browser, tried: Running):
    with visit(browser, tried.address, try_link(SCRIPT, "write", prompt={"not": ["a text"]})) as tab:
        expect(tab.page.get_by_role("alert")).to_contain_text(SCRIPT)
        assert tab.page.evaluate("window.__pwned") is None
        assert labels_of(tab.page) == []
        tab.check()
