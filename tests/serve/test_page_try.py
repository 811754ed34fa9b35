"""The Try room: every panel shows what the service answers to the same request, and the same request elsewhere."""

import json
import re
import time
from pathlib import Path
from typing import Any

import axe_playwright_python
import numpy as np
import pytest
from browsing import DESKTOP, PHONE, serious_faults, visit
from reading_models import SENTENCES, small_model
from running import Running, serving
from trying import (
    REFUSED,
    RUN,
    arguments_of,
    bash,
    browser,
    expect,
    has_overflow,
    labels_of,
    needs_browser,
    opened,
    printed_by,
    run,
    shown_code,
    tried,
    try_link,
)

import weft
from weft.cli import app
from weft.serve.security import Security

pytestmark = needs_browser
assert browser and tried  # fixtures
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
KEY = "a-key-of-sixteen-letters"
TRICKY = 'It\'s “so” "quoted" \\ $HOME `x`\n第二行 🐇 \u202eabc\u202c <img src=x onerror=window.__pwned=1>'
GREEDY = {"temperature": 0, "max_tokens": 12}


def percent(score: float) -> str:
    return f"{float(f'{score * 100:.3g}'):,g} %"


def answer_to(tried: Running, path: str, **body: Any) -> Any:
    answer = tried.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ["classify", "pair"])
def test_bars_are_the_labels_of_the_service(browser, tried, name):
    first, second = TRICKY, SENTENCES[1]
    inputs: Any = first if name == "classify" else {"text": first, "text_pair": second}
    (found,) = answer_to(tried, f"/v1/tasks/{name}", model=name, inputs=inputs)
    with opened(browser, tried, name, name, {"text": first, "second": second}) as tab:
        run(tab.page)
        assert labels_of(tab.page) == [one["label"] for one in found]
        assert tab.page.locator(".bar-value").all_inner_texts() == [percent(one["score"]) for one in found]
        assert tab.page.locator(".verdict").inner_text().strip() == found[0]["label"]


def test_a_model_with_several_labels_has_a_threshold(browser, tried):
    (found,) = answer_to(tried, "/v1/tasks/classify", model="several", inputs=SENTENCES[0])
    threshold = (found[0]["score"] + found[1]["score"]) / 2
    with opened(browser, tried, "several", "classify", {"text": SENTENCES[0], "threshold": 0.999}) as tab:
        run(tab.page)
        assert "No label" in tab.page.locator(".verdict").inner_text()
        tab.page.get_by_label("Threshold").fill(str(threshold))
        assert tab.page.locator(".verdict").inner_text().strip() == found[0]["label"]


def test_the_table_of_similarity_has_every_pair(browser, tried):
    texts = SENTENCES[:3]
    found = answer_to(
        tried,
        "/v1/tasks/similarity",
        model="similarity",
        inputs=[{"source_sentence": one, "sentences": texts} for one in texts],
    )
    with opened(browser, tried, "similarity", "similarity", {"texts": "\n".join(texts)}) as tab:
        run(tab.page)
        cells = tab.page.locator(".heat tbody td").all_inner_texts()
        assert cells == [f"{value:.2f}" for row in found for value in row]
        assert tab.page.locator(".heat th[scope=row]").count() == 3


@pytest.mark.parametrize("name", ["tag", "pos"])
def test_marks_stand_where_the_service_says_also_after_characters_of_two_units(browser, tried, name):
    text = "🐇🐇 Alice met 爱丽丝 in Paris 🎩, <b>down</b> the hole."
    found = answer_to(tried, "/v1/tasks/tag", model=name, inputs=text)
    assert found
    with opened(browser, tried, name, "tag", {"text": text}) as tab:
        run(tab.page)
        marks = tab.page.locator(".marked mark > bdi")
        assert (
            marks.all_inner_texts()
            == [one["word"] for one in found]
            == [text[one["start"] : one["end"]] for one in found]
        )
        tags = tab.page.locator(".marked .tag").all_inner_texts()
        assert tags == [one.get("entity_group") or one["entity"] for one in found]
        assert tab.page.locator(".found tbody tr").count() == len(found)


def test_an_answer_is_marked_in_its_context_and_others_can_be_chosen(browser, tried):
    given = {"question": "Who sat?", "context": f"🐇 {SENTENCES[0]} {SENTENCES[3]}"}
    found = answer_to(tried, "/v1/tasks/answer", model="answer", inputs=given, parameters={"top_k": 5})
    with opened(browser, tried, "answer", "answer", given) as tab:
        run(tab.page)
        assert labels_of(tab.page) == [one["answer"] for one in found]
        for one, button in zip(found, tab.page.locator(".bars button").all(), strict=True):
            button.click()
            assert tab.page.locator(".marked mark").inner_text() == one["answer"]


def test_a_command_becomes_fields(browser, tried):
    text = "turn on the light in the kitchen"
    found = answer_to(tried, "/v1/tasks/intent", model="intent", inputs=text, parameters={"top_k": 20})
    with opened(browser, tried, "intent", "intent", {"text": text}) as tab:
        run(tab.page)
        assert tab.page.locator(".verdict").inner_text() == found["intent"]
        assert labels_of(tab.page) == [one["label"] for one in found["intents"]]
        rows = [row.split("\t")[:2] for row in tab.page.locator(".found tbody tr").all_inner_texts()]
        slots = [(one["start"], one["word"], kind) for kind, all_ in found["slots"].items() for one in all_]
        assert rows == [[word, kind] for _, word, kind in sorted(slots)]


def test_a_click_puts_a_word_into_its_gap_and_asks_again(browser, tried):
    text = "The [MASK] sat on the [MASK]."
    found = answer_to(tried, "/v1/tasks/fill", model="bert", inputs=text, parameters={"top_k": 8})
    with opened(browser, tried, "bert", "fill", {"text": text}) as tab:
        run(tab.page)
        words = [[one["token_str"].strip() for one in mask] for mask in found]
        assert labels_of(tab.page) == [word for mask in words for word in mask]
        whole = next(word for word in words[1] if not word.startswith("##"))
        place = len(words[0]) + words[1].index(whole)
        tab.page.locator(".bars button").nth(place).click()
        field = tab.page.get_by_label("Text with gaps")
        assert field.input_value() == f"The [MASK] sat on the {whole}."
        again = answer_to(tried, "/v1/tasks/fill", model="bert", inputs=field.input_value(), parameters={"top_k": 8})
        expect(tab.page.locator(".result .bar-label")).to_have_count(8)
        assert labels_of(tab.page) == [one["token_str"].strip() for one in again]
        field.fill("No gap")
        expect(tab.page.get_by_text("The text has no gap: insert one.")).to_be_visible()


def test_examples_are_in_a_language_that_the_model_reads(browser, tried):
    with opened(browser, tried, "bert", "fill", language="zh-CN") as tab:
        expect(tab.page.get_by_label("带空缺的文本")).to_have_value("The [MASK] sat on the [MASK].")


@pytest.mark.parametrize(("name", "key"), [("translate", "translation_text"), ("reply", "generated_text")])
def test_one_of_several_texts_is_chosen(browser, tried, name, key):
    parameters = {"num_return_sequences": 3}
    found = answer_to(tried, f"/v1/tasks/{name}", model=name, inputs=SENTENCES[0], parameters=parameters)
    with opened(browser, tried, name, name, {"text": SENTENCES[0], "settings": {"number": 3}}) as tab:
        run(tab.page)
        assert labels_of(tab.page) == [one[key] for one in found]
        values = tab.page.locator(".bar-value").all_inner_texts()
        assert values == [percent(float(np.exp(one["score"]))) for one in found]
        tab.page.locator(".bars button").nth(2).click()
        assert tab.page.locator(".prose pre").inner_text() == found[2][key]


def test_search_ranks_by_the_cosine_of_the_vectors(browser, tried):
    query, texts = SENTENCES[0], SENTENCES[1:]
    vectors = small_model("bert").embed([query, *texts])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")
    with opened(browser, tried, "bert", "embed", {"query": query, "texts": "\n".join(texts)}) as tab:
        run(tab.page)
        assert labels_of(tab.page) == [texts[place] for place in order]
        assert "32 numbers" in tab.page.locator(".result").inner_text()


def test_tokens_are_those_of_the_tokenizer(browser, tried):
    text = "Alice  met\n爱丽丝 🐇"
    (found,) = answer_to(tried, "/tokenize", model="story", inputs=text)
    with opened(browser, tried, "story", "tokens", {"text": text, "ids": True}) as tab:
        run(tab.page)
        assert [int(one) for one in tab.page.locator(".pieces small").all_inner_texts()] == [one["id"] for one in found]
        seen = [one["text"].replace("\n", "⏎").replace(" ", "␣") for one in found]
        assert tab.page.locator(".pieces bdi").all_inner_texts() == seen


def test_writing_streams_the_services_text_token_by_token(browser, tried):
    body = {"model": "story", "prompt": "Alice was", "logprobs": 5, **GREEDY}
    (choice,) = answer_to(tried, "/v1/completions", **body)["choices"]
    with opened(browser, tried, "story", "write", {"prompt": "Alice was", "a": GREEDY}) as tab:
        run(tab.page, ".answer .facts")
        shown = tab.page.locator(".answer .text").evaluate("one => one.textContent")
        assert shown == choice["text"]
        seen, groups = [], tab.page.locator(".token")
        groups.first.focus()  # by keyboard alone
        for _ in range(groups.count()):
            for one in tab.page.locator(".inspector > div").all():  # a character may be several tokens
                seen.append([one.locator(".bar-value").first.inner_text(), one.locator(".bar").count()])
            tab.page.keyboard.press("ArrowRight")
        top = choice["logprobs"]["top_logprobs"]
        assert seen == [[percent(float(np.exp(max(one.values())))), len(one)] for one in top]


def test_two_settings_are_compared_on_one_prompt(browser, tried):
    values = {"prompt": "Alice", "compare": True, "a": GREEDY, "b": {"seed": 7, "max_tokens": 6, "n": 2}}
    body = {"model": "story", "prompt": "Alice", "logprobs": 5}
    expected = [
        choice["text"]
        for side in ("a", "b")
        for choice in answer_to(tried, "/v1/completions", **body, **values[side])["choices"]
    ]
    with opened(browser, tried, "story", "write", values) as tab:
        run(tab.page)
        expect(tab.page.locator(".facts")).to_have_count(3)
        texts = tab.page.locator(".answer .text").evaluate_all("all => all.map((one) => one.textContent)")
        assert texts == expected


def test_beams_and_constraints_are_settings_too(browser, tried):
    settings = {"beams": 3, "n": 2, "max_tokens": 5}
    body = {"model": "story", "prompt": "Alice", "logprobs": 5}
    found = answer_to(tried, "/v1/completions", **body, **settings)["choices"]
    with opened(browser, tried, "story", "write", {"prompt": "Alice", "a": settings}) as tab:
        run(tab.page, ".answer .facts")
        texts = tab.page.locator(".answer .text").evaluate_all("all => all.map((one) => one.textContent)")
        assert texts == [choice["text"] for choice in found]
    with opened(browser, tried, "story", "write", {"a": {"guided_choice": " yes\n no"}}) as tab:
        run(tab.page, ".answer .facts")
        assert tab.page.locator(".answer .text").evaluate("one => one.textContent") in (" yes", " no")


@pytest.mark.parametrize("name", ["talk", "reply"])
def test_a_conversation_has_a_history_and_another_reply(browser, tried, name):
    system = [{"role": "system", "content": "Be kind."}] if name == "talk" else []
    said: list[dict[str, str]] = []
    with opened(browser, tried, name, "chat", {"settings": GREEDY, "system": "Be kind."}) as tab:
        page = tab.page
        for text in ("Hello <b>", "And then?"):
            said.append({"role": "user", "content": text})
            (choice,) = answer_to(tried, "/v1/chat/completions", model=name, messages=[*system, *said], **GREEDY)[
                "choices"
            ]
            said.append({"role": "assistant", "content": choice["message"]["content"]})
            page.get_by_label("Your message").fill(text)
            page.keyboard.press("Enter")
            expect(page.locator(".said")).to_have_count(len(said))
            expect(page.locator("[aria-busy=true]")).to_have_count(0)
        contents = page.locator(".said .text").evaluate_all("all => all.map((one) => one.textContent)")
        assert contents == [one["content"] for one in said]
        page.get_by_role("button", name="Another reply").click()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        expect(page.locator(".said")).to_have_count(4)
        page.get_by_role("button", name="Clear").click()
        expect(page.locator(".said")).to_have_count(0)


CODED = {
    "classify": ("classify", {"text": TRICKY}),
    "pair": ("pair", {"text": TRICKY, "second": "--help"}),
    "answer": ("answer", {"question": "-", "context": TRICKY}),
    "bert": ("fill", {"text": f"[MASK] {TRICKY}"}),
    "story": ("write", {"prompt": TRICKY, "a": {**GREEDY, "stop": "##\\n\n'"}}),
    "translate": ("translate", {"text": TRICKY}),
}


@pytest.mark.parametrize("name", CODED)
def test_the_commands_and_programs_shown_do_the_same(browser, tried, name, capsys):
    panel, values = CODED[name]
    folder = tried.service.models[name].model.folder
    with opened(browser, tried, name, panel, {**values, "code": "curl"}) as tab:
        page = tab.page
        sent: list[Any] = []
        page.on("request", lambda one: sent.append(one) if one.method == "POST" else None)
        run(page)
        body = {key: value for key, value in sent[0].post_data_json.items() if not key.startswith("stream")}
        expected = answer_to(tried, sent[0].url.removeprefix(tried.address), **body)
        assert_same(json.loads(bash(shown_code(page))), expected)
        page.get_by_role("tab", name="Python", exact=True).click()
        printed = printed_by(shown_code(page), Path(), capsys)
        if panel == "write":
            assert printed.removesuffix("\n") == expected["choices"][0]["text"]
        else:
            assert_same(eval(printed), expected)
        page.get_by_role("tab", name="Python without").click()
        assert printed_by(shown_code(page), folder, capsys)
        page.get_by_role("tab", name="Command").click()
        words = [str(folder) if word == "FOLDER" else word for word in arguments_of(shown_code(page))]
        assert words[0] in ("predict", "fill", "generate")
        assert all(value in words for key, value in values.items() if key not in ("a", "settings"))
        app(words, standalone_mode=False)
        printed = capsys.readouterr().out
        if panel == "write":
            assert printed.removesuffix("\n") == weft.terminal.for_standard_output(expected["choices"][0]["text"])


def assert_same(found: Any, expected: Any) -> None:
    for one in (found, expected):
        for key in ("id", "created"):
            one.pop(key, None) if isinstance(one, dict) else None
    assert found == expected


def test_a_reload_and_a_link_in_another_tab_show_the_same(browser, tried):
    with opened(browser, tried, "classify", "classify") as tab:
        page = tab.page
        page.get_by_label("Text").fill(TRICKY)
        run(page)
        before = page.locator(".result").inner_text()
        page.reload()
        expect(page.get_by_label("Text")).to_have_value(TRICKY)
        assert page.locator(".result").inner_text() == before
        expect(page).to_have_url(re.compile("text="))
        link = page.url.partition("#")[2]
        page.get_by_role("link", name="Search").click()
        expect(page.get_by_label("Query")).to_be_visible()
        page.go_back()
        expect(page.get_by_label("Text")).to_have_value(TRICKY)
    with opened(browser, tried, "classify", "classify") as other:
        other.page.goto(f"{tried.address}/#{link}")
        expect(other.page.get_by_label("Text")).to_have_value(TRICKY)


def _idle(running: Running, name: str) -> bool:
    writing = running.service.models[name].writing
    until = time.monotonic() + 20
    while writing.engine.has_work and time.monotonic() < until:
        running.get("/health")
    return not writing.engine.has_work


@pytest.mark.parametrize("way", ["stop", "leave"])
def test_stopping_or_leaving_ends_the_work_of_the_service(browser, tried, way):
    values = {"a": {"max_tokens": 2_000, "ignore_eos": True, "n": 4}}
    load = tried.service.models["talk"].writing.engine.load
    before = load.generated_tokens
    with opened(browser, tried, "talk", "write", values) as tab:
        tab.page.locator(RUN).first.click()
        expect(tab.page.locator(".token").nth(3)).to_be_visible()
        if way == "stop":
            tab.page.get_by_role("button", name="Stop").click()
            assert "Stopped" in tab.page.locator(".facts").first.inner_text()
        else:
            tab.page.get_by_role("link", name="Tokens").click()
        assert _idle(tried, "talk")
        assert tried.service.models["talk"].writing.engine.load.generated_tokens - before < 8_000


def test_a_service_with_a_key_asks_for_it(browser, models, tmp_path):
    file = tmp_path / "keys"
    file.write_text(KEY, "utf-8")
    security = Security.of("127.0.0.1", file)
    with serving({"story": models["story"]}, security=security) as running:
        link = try_link("story", "write", a=GREEDY, code="curl")
        with visit(browser, running.address, link, expected_errors=(REFUSED,)) as tab:
            page = tab.page
            page.get_by_label("API key").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("key is missing or wrong")
            page.get_by_label("API key").fill(KEY)
            page.keyboard.press("Enter")
            run(page, ".answer .facts")
            assert KEY not in page.content()
            found = json.loads(bash(shown_code(page), KEY=KEY))
            shown = page.locator(".answer .text").evaluate("one => one.textContent")
            assert found["choices"][0]["text"] == shown
            tab.check()


# axe inserts styles, and looks for an imported style sheet beside the document.
FROM_AXE = ("Applying inline style", "404")
SWEEP = [("story", "write"), ("talk", "chat"), ("bert", "fill"), ("several", "classify"), ("pair", "pair")]
SWEEP += [("similarity", "similarity"), ("tag", "tag"), ("answer", "answer"), ("translate", "translate")]
SWEEP += [("intent", "intent"), ("bert", "embed"), ("story", "tokens")]


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_no_panel_is_cut_off_or_hard_to_use(browser, tried, language):
    # Every panel in each language at both widths; each width is searched for faults in one of the languages.
    with opened(browser, tried, *SWEEP[0], language=language, expected_errors=FROM_AXE) as tab:
        page = tab.page
        for number, (model, panel) in enumerate(SWEEP):
            few = {"write": {"a": GREEDY}, "chat": {"settings": GREEDY}}.get(panel, {})
            page.goto(f"{tried.address}/#{try_link(model, panel, code='curl', **few)}")
            run(page, ".said.assistant bdi" if panel == "chat" else ".result > *")
            page.locator(".boxed > summary, .more:not([open]) > summary").first.click()
            sizes = [PHONE, DESKTOP] if (number % 2 == 0) == (language == "en-US") else [DESKTOP, PHONE]
            for size in sizes:
                page.set_viewport_size({"width": size[0], "height": size[1]})
                assert not has_overflow(page), (model, panel, size)
            assert serious_faults(page, AXE) == [], (model, panel)
