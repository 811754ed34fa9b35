"""The page's files: strict headers, no key for what is public, light, and nothing in them that the policy forbids."""

import re
from pathlib import Path

import pytest
from running import Running, serving

import weft
from weft.serve.page_files import page_files
from weft.serve.security import Security

KEY = "a-key-of-sixteen-letters"
HTML = {"accept": "text/html,application/xhtml+xml"}
OWN = sorted(name for name in page_files() if not name.startswith("lib/"))


def test_browsers_get_the_page_and_programs_the_routes(running: Running):
    page = running.get("/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert b"/page/app.js" in page.content
    assert "routes" in running.get("/").json()


def test_the_policy_allows_nothing_inline_and_no_other_origin(running: Running):
    for path in ("/", *(f"/page/{name}" for name in page_files())):
        policy = running.get(path, headers=HTML).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert running.get(path, headers=HTML).headers["x-content-type-options"] == "nosniff"


def test_a_browser_that_has_a_file_does_not_get_it_again(running: Running):
    first = running.get("/page/app.js")
    again = running.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "lib", "", "lib/README.md", "%00", "x" * 5000])
def test_only_files_of_the_page_are_sent(name: str, running: Running):
    answer = running.get(f"/page/{name}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_the_page_needs_no_key_but_what_it_shows_does(models: dict[str, weft.Model], tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text(KEY, encoding="utf-8")
    with serving({"story": models["story"]}, security=Security.of("127.0.0.1", file)) as running:
        assert running.get("/", headers=HTML).status_code == 200
        assert running.get("/page/app.js").status_code == 200
        for path in ("/", "/page.json", "/v1/models"):
            assert running.get(path).status_code == 401
            assert running.get(path, headers={"authorization": f"Bearer {KEY}"}).status_code == 200


def test_the_page_weighs_less_than_300_kilobytes():
    assert sum(len(file.content) for file in page_files().values()) < 300_000


@pytest.mark.parametrize("name", OWN)
def test_no_file_uses_what_the_policy_forbids_or_asks_another_origin(name: str):
    text = page_files()[name].content.decode()
    for forbidden in (r"(inner|outer)HTML", r"insertAdjacentHTML", r"\beval\(", r"new Function", r"document\.write"):
        assert not re.search(forbidden, text), forbidden
    addresses = re.findall(r"https?://[^\s\"'`<>)]+", text)
    assert [one for one in addresses if not one.startswith("http://www.w3.org/")] == []


@pytest.mark.parametrize("area", ["common", "try", "watch"])
def test_english_and_chinese_have_the_same_words(area: str):
    keys = {}
    for language in ("en", "zh"):
        text = page_files()[f"texts/{language}/{area}.js"].content.decode()
        found = re.findall(r'^\s*(?:"([^"]+)"|([A-Za-z_]\w*)):', text, re.MULTILINE)
        keys[language] = {quoted or plain for quoted, plain in found}
    assert keys["en"] == keys["zh"]
