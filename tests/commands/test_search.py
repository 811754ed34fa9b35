"""`weft search` and its index: exact, the same again from disk, made anew when something has changed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from random_models import make_random
from small_tasks import weft as command
from weft.api.search import Passage, SearchIndex, cut_passages

TEXTS = {
    "food.txt": "The soup is hot.\n\nBread and butter taste good together, " + "and so on, " * 30,
    "music.txt": "She plays the piano every evening.",
}


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


def found(said):
    assert said.code == 0, said.err
    return [(one["place"], one["score"]) for one in json.loads(said.out)["queries"][0]["found"]]


def test_the_nearest_passages_are_those_of_all(minilm):
    model = weft.load(minilm)
    passages = [f"passage {number} about {what}" for number, what in enumerate(["cats", "ships", "law"] * 5)]
    index = SearchIndex.build(model, passages)
    cosines = model.embed(passages) @ model.embed(["a kitten"])[0]
    best = np.argsort(-cosines)[:4]
    assert [one.passage.text for one in index.search("a kitten", 4)] == [passages[i] for i in best]
    assert [one.score for one in index.search("a kitten", 4)] == pytest.approx(cosines[best], abs=1e-5)
    assert len(index.search("a kitten", 100)) == len(passages)


def test_a_folder_is_searched_and_remembered(minilm, texts, tmp_path):
    ask = ["search", minilm, texts, "--query", "someone makes music", "--json"]
    without = found(command(*ask))
    assert without[0][0] == "music.txt, text 1, passage 1"
    first = command(*ask, "--index", tmp_path / "index")
    again = command(*ask, "--index", tmp_path / "index")
    assert found(first) == found(again) == without
    assert "Reading" in first.err and "Reading" not in again.err
    (texts / "new.txt").write_text("Music made by somebody.")
    changed = command(*ask, "--index", tmp_path / "index")
    assert "reading the texts again" in changed.err and found(changed)[0][0].startswith("new.txt")


def test_another_model_does_not_take_the_index(tmp_path):
    one, other = (make_random("bert", seed) for seed in (0, 1))
    SearchIndex(one, [Passage("a")], np.ones((1, 48), np.float32)).save(tmp_path / "index")
    assert SearchIndex.open(tmp_path / "index", one) is not None
    assert SearchIndex.open(tmp_path / "index", other) is None


def test_the_page_shows_texts_as_text(minilm, tmp_path):
    (tmp_path / "text.txt").write_text("A <script>alert(1)</script> piano & <b>violins</b>.")
    page = tmp_path / "found.html"
    said = command("search", minilm, tmp_path / "text.txt", "--query", "<i>piano</i>", "-o", page)
    assert said.code == 0 and said.err.endswith(f"Next: open {page}\n")
    html = page.read_text()
    assert "<script>alert" not in html and "&lt;script&gt;" in html and "<i>piano" not in html
    assert "<mark>piano</mark>" in html and "http" not in html


@given(st.lists(st.text("ab 。\n", max_size=700), max_size=4), st.integers(1, 300))
def test_passages_are_the_whole_text_in_order_and_short_enough(parts, most):
    text = "\n\n".join(parts)
    passages = list(cut_passages(text, most))
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert all(one.strip() and len(one) <= max(1, 0.8 * 4.3 * most) for one in passages)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere", "-q", "x"], "nowhere does not exist"),
        (["blank.txt", "-q", "x"], "no text to search in blank.txt"),
        ([".", "-q", " "], "A query is empty"),
        (["-", "-q", "x", "--index", "index"], "Save it to a file first"),
        (["-"], "the queries must be given"),
        ([".", "-o", "page.html"], "A page needs its queries"),
        ([".", "-q", "x", "--documents", "word"], "documents cannot be 'word'"),
    ],
)
def test_mistakes_are_a_sentence(arguments, problem, minilm, texts, monkeypatch):
    monkeypatch.chdir(texts)
    (texts / "blank.txt").write_text(" \n\n")
    assert problem in command("search", minilm, *arguments).sentence


def test_a_damaged_or_foreign_index_is_refused(minilm, texts, tmp_path):
    index = tmp_path / "index"
    index.mkdir()
    (index / "other.txt").write_text("mine")
    ask = ["search", minilm, texts, "-q", "x", "--index", index]
    assert "index" in command(*ask).sentence and (index / "other.txt").read_text() == "mine"
