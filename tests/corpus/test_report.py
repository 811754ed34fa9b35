"""The page stands by itself, says what the figures say, and drift is flagged."""

import json
import re

import pytest

from test_corpus import paragraph, section
from weft.corpus.build import build_corpus
from weft.corpus.drift import find_drift
from weft.corpus.report import read_corpus_report
from weft.corpus.report_page import write_corpus_page
from weft.errors import FolderError

HOSTILE = "<script>alert(1)</script> & more"


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The second has the same good documents as the first, and many that are dropped."""
    place = tmp_path_factory.mktemp("place")
    good = [paragraph(number) for number in range(120)]
    (place / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in good))
    bad = [f"{HOSTILE} {number}" for number in range(60)] + [good[0]] * 3
    (place / "b.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in good + bad))
    for name in ("a", "b"):
        build_corpus(section(f"{name}.jsonl"), place, place / name, name=f"corpus {name}")
    return place / "a", place / "b"


def test_the_page_stands_by_itself(corpora):
    page = (corpora[1] / "report.html").read_text("utf-8")
    assert not re.findall(r"(?:src|href)\s*=|https?://|@import|url\(", page)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page  # an example of what was dropped


def test_the_page_says_what_the_figures_say(corpora):
    report, page = read_corpus_report(corpora[1]), (corpora[1] / "report.html").read_text("utf-8")
    assert report["funnel"][0][1] == 183
    assert report["funnel"][-1][1] == report["counts"]["documents"] == 120
    left = [left for _, left, _ in report["funnel"]]
    assert left == sorted(left, reverse=True)
    assert "exact duplicate — 3 documents (1.6%)" in page
    assert "3 copies" not in page and "4 copies of one text" in page
    assert sum(report["languages"]["read"].values()) == 183
    assert sum(report["lengths"]["kept"].values()) == 120
    assert sum(facts["documents"] for facts in report["splits"].values()) == 120


def test_without_examples_no_text_is_in_the_page(corpora):
    page = corpora[1] / "report.html"
    whole = page.read_bytes()
    write_corpus_page(corpora[1], examples=False)
    assert "alert" not in page.read_text("utf-8")
    assert " ".join(paragraph(0).split()[:5]) not in page.read_text("utf-8")
    write_corpus_page(corpora[1])
    assert page.read_bytes() == whole


def test_drift_is_flagged_and_sameness_is_not(corpora):
    a, b = map(read_corpus_report, corpora)
    assert not any(difference.drifts for difference in find_drift(a, a))
    found = {difference.what: difference for difference in find_drift(a, b)}
    assert found["share of documents kept"].drifts
    assert found["share dropped: length"].drifts
    assert not found["share dropped: exact duplicate"].drifts
    assert not found["lengths, all together"].drifts
    write_corpus_page(corpora[1], corpora[0])
    assert "drift" in (corpora[1] / "report.html").read_text("utf-8")
    write_corpus_page(corpora[1])


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(FolderError, match="not a corpus"):
        write_corpus_page(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(FolderError, match="not the report of a corpus"):
        write_corpus_page(tmp_path)
