"""The pages in docs/: links lead somewhere, generated parts are current, quoted messages are those of the code."""

import ast
import re
from pathlib import Path

import pytest

import decisions_index
import recipe_reference

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md"), ROOT / "examples/README.md", ROOT / "benchmarks/RESULTS.md"])


def read(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def anchors_of(page: str) -> set[str]:
    """As GitHub makes them: headings in lower case without punctuation, and those that are written out."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([\w-]+)">', page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text("utf-8")), link


def test_every_page_is_in_the_index():
    linked = set(re.findall(r"\]\(([\w-]+\.md)", read("README.md")))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


def test_the_recipe_reference_is_current():
    assert read("recipe.md") == recipe_reference.reference(), "run python scripts/recipe_reference.py"


def test_every_key_of_a_recipe_has_a_meaning():
    rows = [line.split(" | ") for line in read("recipe.md").splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


def test_every_decision_is_in_the_index_once():
    page = read("decisions.md")
    assert decisions_index.with_index(page) == page, "run python scripts/decisions_index.py"
    _, index, body = decisions_index.split(page)
    decisions = decisions_index.read_decisions(body)
    assert len(decisions) == len(re.findall(r"^\*\*\d{4}-\d\d-\d\d · ", body, re.MULTILINE))
    assert sorted(decisions_index.LINE.findall(index)) == sorted(decision.anchor for decision in decisions)


def test_a_new_decision_is_listed_under_its_subject():
    page = read("decisions.md") + "\n**2030-01-01 · Beams share a cache.** A prompt is read once.\n"
    new = decisions_index.with_index(page)
    assert '<a id="beams-share-a-cache"></a>\n**2030-01-01 · Beams share a cache.**' in new
    assert decisions_index.subjects_in(decisions_index.split(new)[1])["beams-share-a-cache"] == "Generation"
    assert decisions_index.with_index(new) == new


def strings_in_the_source() -> str:
    """All texts of the code, each f-string in its parts between braces."""
    trees = [ast.parse(file.read_text("utf-8")) for file in (ROOT / "src/weft").rglob("*.py")]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_messages_quoted_in_troubleshooting_are_those_of_the_code():
    source = strings_in_the_source()
    quoted = re.findall(r"^```text\n(.*?)\n```$", read("troubleshooting.md"), re.MULTILINE | re.DOTALL)
    assert len(quoted) > 10
    fragments = [part for message in quoted for part in re.split(r"\s?…\s?", message) if part]
    assert [fragment for fragment in fragments if fragment not in source] == []


def test_the_numbers_of_choosing_are_those_that_were_measured():
    names = ("results.md", "text8.md", "budget.md", "../benchmarks/RESULTS.md")
    measured = set(re.findall(r"\d[\d.,]*\d", "\n".join(read(name) for name in names)))
    numbers = re.findall(r"\d+\.\d{2,}|\d+,\d{3}\b(?:,\d{3})*", read("choosing.md").replace("8,000", ""))
    assert len(numbers) > 50
    assert set(numbers) <= measured | {"1,000", "10,000"}
