"""The guide as a whole: nothing is missing or out of date, mistakes are caught, notebooks run."""

import json
import re

import pytest
from typer.testing import CliRunner

import theory
import theory_check
import theory_mutants
from mutations import mutations_of
from weft.cli import app
from weft.errors import WeftError
from weft.theory.chapters import CHAPTER_TITLES, read_chapter, written_chapters
from weft.theory.checklist import CHECKLIST, FORMULAS, PROCEDURES
from weft.theory.entry import LANGUAGES, SourceLines
from weft.theory.excerpt import LinesMissing, excerpt
from weft.theory.notebooks import notebook
from weft.theory.places import guide_folder, read_guide_text
from weft.theory.render import anchor_of


def test_every_chapter_is_written():
    assert written_chapters() == list(CHAPTER_TITLES)
    assert theory_check.rows_to_write() == []


def test_every_formula_and_procedure_has_a_chapter():
    assert list(CHECKLIST) == [*FORMULAS, *PROCEDURES]
    assert all(row.chapters and set(row.chapters) <= CHAPTER_TITLES.keys() for row in CHECKLIST.values())


def test_nothing_is_missing_and_the_languages_agree():
    assert theory_check.problems() == []


@pytest.mark.parametrize("slug", written_chapters())
def test_texts_and_pictures_are_current(slug):
    stale = [path.name for path, text in theory.contents([slug]) if theory.is_stale(path, text)]
    assert stale == [], "run python scripts/theory.py"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("<!-- code weights -->", "<!-- code score -->"), "the block <!-- code weights -->"),
        (lambda text: text.replace("sum_k \\exp", "sum_j \\exp"), "differ in displayed formulas"),
        (lambda text: text.replace("attention-map.zh", "attention-map.en"), "picture attention-map is that of en"),
        (lambda text: text.replace("/attention-map.", "/attention-mop."), "shows the pictures"),
        (lambda text: text.replace("### ✗", "###", 1), "rows are wrong in print"),
        (
            lambda text: text.replace("places = ", "place = ").replace("sat = weights", "sat = 1 * weights"),
            "differ in cells",
        ),
        (lambda text: text.replace("sat[0]:.3f", "sat[0]:.2f"), "differ in values"),
        (lambda text: text.replace("想象一抽屉卡片。", "想象一抽屉\n卡片。"), "a Chinese line is broken"),
        (lambda text: text.replace("<!-- head -->", ""), "<!-- head --> is missing"),
    ],
)
def test_the_check_finds_what_differs(change, problem, monkeypatch):
    def changed(slug, language):
        text = read_guide_text(slug, language)
        return change(text) if language == "zh" else text

    monkeypatch.setattr(theory_check, "read_guide_text", changed)
    found = list(theory_check._chapter_problems(read_chapter("attention")))
    assert any(problem in one for one in found), found


@pytest.mark.parametrize(
    "part",
    [
        SourceLines("weft.model.attention:attended"),
        SourceLines("weft.model.attentions:attend"),
        SourceLines("weft.model.attention:attend", "no such"),
        SourceLines("weft.model.attention:attend", "return"),  # stands there three times
    ],
)
def test_lines_that_have_gone_are_an_error(part):
    with pytest.raises(LinesMissing):
        excerpt(part)


def test_lines_are_found_by_their_beginning():
    found = excerpt(SourceLines("weft.model.attention:visibility_mask", "index =", "distance ="))
    assert found.text.splitlines()[0].startswith("index = torch.arange")
    assert found.last == found.first + 1 and found.path == "model/attention.py"


def test_mistakes_in_production_lines_are_caught_and_undone():
    entry = read_chapter("attention").entry("output")
    test = theory_mutants.load_tests("attention").test_output
    assert theory_mutants.judge(entry, test, False) == []
    test()


def test_a_test_that_looks_away_is_found():
    entry = read_chapter("attention").entry("weights")
    wrong = theory_mutants.judge(entry, lambda: None, False)
    assert len(wrong) == sum(1 for _ in theory_mutants.mutants_of(entry)) > 5


def test_what_counts_as_a_mistake():
    source = "def f(a, b):\n    if a < b:\n        return -a * b.T\n    return sin(a[1:]) @ b\n"
    changes = {change for change, _ in mutations_of(source, range(2, 5))}
    assert {"if a < b → if not a < b", "a < b → a <= b", "a < b → a > b", "-a → a", "-a * b.T → -a / b.T"} <= changes
    assert {"-a * b.T → -a", "-a * b.T → b.T", "b.T → b", "1 → 2", "sin(a[1:]) → cos(a[1:])"} <= changes
    assert "sin(a[1:]) @ b → b @ sin(a[1:])" in changes


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_notebook_runs_in_order(language):
    cells = notebook("learning", language)["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["z"].tolist() == [2.0, 1.0, 0.5, -1.0]
    assert names["show"]("learning", "clipping", language)._repr_svg_().startswith("<svg")
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert "$$" in text and "<!--" not in text and "../" not in text


def test_the_command_writes_notebooks(tmp_path):
    found = CliRunner().invoke(app, ["theory", "--notebooks", str(tmp_path), "--json"])
    assert json.loads(found.output)["count"] == 2 * (len(written_chapters()) - 1)
    made = json.loads((tmp_path / "zh/attention.ipynb").read_text("utf-8"))
    assert made["nbformat"] == 4 and made["metadata"]["title"] == "注意力"


def test_another_language_is_an_error():
    found = CliRunner().invoke(app, ["theory", "--language", "fr"])
    assert "en and zh" in str(found.exception) and isinstance(found.exception, WeftError)


@pytest.mark.parametrize(
    "file", sorted(guide_folder().rglob("*.md")), ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_links_of_the_texts_lead_somewhere(file):
    text = re.sub(r"```.*?```|`[^`\n]+`", "", file.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = file.parent / path if path else file
        assert target.is_file(), link
        headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(anchor_of, headings), link
