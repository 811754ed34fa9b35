"""Lines of predictions say which row they belong to and, if asked, what was given; rows may come from a pipe."""

import io
import json
import sys

import pytest

from small_tasks import TASKS, rows_of, weft, without_gold, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tuned):
    return tuned("classify") / "model"


@pytest.fixture
def pipe(monkeypatch):
    def put(rows: list[dict] | str) -> None:
        text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return put


def ids_of(said):
    assert said.code == 0, said.err
    return [line["id"] for line in said.lines]


@pytest.mark.parametrize("column", ["id", "ID", "guid", "idx"])
def test_the_id_of_a_line_is_the_datas_own(column, model, tmp_path):
    rows = [{column: f"r{number}", "text": text} for number, text in enumerate(("good", "", "bad"))]
    said = weft("predict", model, "--file", write_rows(tmp_path / "rows.jsonl", rows))
    assert ids_of(said) == ["r0", "r1", "r2"] and "error" in said.lines[1]
    assert next(iter(said.lines[0])) == "id"


def test_any_column_can_be_named_as_the_id(model, tmp_path):
    rows = [{"id": 1, "name": "first", "text": "good"}, {"id": 2, "name": ["?"], "text": "bad"}]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    assert ids_of(weft("predict", model, "--file", file, "--column", "id=name")) == ["first", None]
    assert "has no column nam for the ids. It has: id, name, text." in weft(
        "predict", model, "--file", file, "--column", "id=nam"
    ).sentence  # fmt: skip


def test_a_row_that_cannot_be_read_has_no_id_of_its_own(model, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "text": "good"}\nno JSON\n{"id": "c", "text": "bad"}\n')
    said = weft("predict", model, "--file", tmp_path / "rows.jsonl")
    assert ids_of(said) == ["a", None, "c"] and "rows.jsonl, line 2 is not JSON" in said.lines[1]["error"]


def test_without_an_id_column_the_line_tells_which_row_it_is(model, tmp_path):
    (tmp_path / "rows.csv").write_text('text\n"two\nlines"\ngood\n')
    assert ids_of(weft("predict", model, "--file", tmp_path / "rows.csv")) == [2, 4]
    for name in ("a", "b"):
        (tmp_path / f"texts/{name}").mkdir(parents=True)
        (tmp_path / f"texts/{name}/{name}1.txt").write_text("good film")
    found = ids_of(weft("predict", model, "--file", tmp_path / "texts"))
    assert len(set(found)) == 2 and all(isinstance(one, str) for one in found)


def test_a_column_that_plays_a_role_is_not_an_id(model, tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", [{"id": "good"}, {"id": "bad"}])
    assert ids_of(weft("predict", model, "--file", file, "--column", "text=id")) == [1, 2]


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_repeated_if_asked_for_and_predictions_stay_the_same(task, tuned, tmp_path):
    rows = [without_gold(row) for row in rows_of(task, 3)]
    command = ["predict", tuned(task) / "model", "--file", write_rows(tmp_path / "rows.jsonl", rows)]
    for row, plain, line in zip(rows, weft(*command).lines, weft(*command, "--with-text").lines, strict=True):
        assert line == {**row, **plain}


def test_texts_of_the_command_line_are_repeated_too(tuned):
    (line,) = weft("predict", tuned("pair") / "model", "good", "bad", "--with-text").lines
    assert (line["text"], line["second"]) == ("good", "bad") and "label" in line and "id" not in line
    (line,) = weft("predict", tuned("answer") / "model", "Who?", "Anna sleeps.", "--with-text").lines
    assert (line["question"], line["context"]) == ("Who?", "Anna sleeps.") and "answer" in line
    (line,) = weft("predict", tuned("tag") / "model", "Anna sleeps.", "--with-text").lines
    assert line["text"] == "Anna sleeps." and line["words"] == ["Anna", "sleeps", "."]


def test_rows_come_from_standard_input(model, pipe, tmp_path):
    rows = [{"id": number, "text": text} for number, text in enumerate(("good", "bad", "fine film"))]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    pipe(rows)
    from_pipe = weft("predict", model, "--file", "-", "--format", "jsonl")
    assert from_pipe.lines == weft("predict", model, "--file", file).lines
    pipe("good\n\nbad\n")
    said = weft("predict", model, "--file", "-")
    assert ids_of(said) == [1, 2, 3] and said.lines[1]["error"] == "standard input, line 2 is empty."


def test_a_pipe_can_be_written_to_a_file_but_not_resumed(model, pipe, tmp_path):
    output = tmp_path / "answers.jsonl"
    command = ["predict", model, "--file", "-", "-o", output]
    pipe("good\nbad\n")
    assert weft(*command).code == 0 and len(output.read_text().splitlines()) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["answers.jsonl"]
    pipe("good\nbad\n")
    assert "exists already: choose another file." in weft(*command).sentence
    assert "Save it to a file, and give that to --file." in weft(*command, "--resume").sentence


def test_a_model_is_judged_on_standard_input(model, pipe, tmp_path):
    rows = rows_of("classify", 6)
    of_file = json.loads(weft("evaluate", model, write_rows(tmp_path / "data.jsonl", rows), "--json").out)
    pipe(rows)
    found = json.loads(weft("evaluate", model, "-", "--format", "jsonl", "--json").out)
    assert found["figures"] == of_file["figures"] and found["data"] == "standard input"
    assert "Give it: --format jsonl" in weft("evaluate", model, "-").sentence
