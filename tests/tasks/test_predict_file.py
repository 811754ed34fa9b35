"""`weft predict --file`: a line for every row, and what it refuses to resume."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft as library
from small_tasks import rows_of, weft, without_gold, write_rows
from weft.errors import InputError
from weft.folders import locked
from weft.tasks.judging import predict_file

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tuned):
    return tuned("classify") / "model"


def texts_of(count: int, seed: int = 0) -> list[str]:
    pick, words = random.Random(seed), "good bad great awful film number a".split()
    return [" ".join(pick.choices(words, k=pick.randint(1, 6))) for _ in range(count)]


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(line + "\n" for line in lines))
    return file


def with_ids(answers: list[dict], ids: list) -> list[dict]:
    return [{"id": number, **answer} for number, answer in zip(ids, answers, strict=True)]


def test_every_row_has_a_line_also_a_blank_one(model, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("good\n\nbad\n  \t\nfine film")
    said = weft("predict", model, "--file", file)
    answer, error = {"id", "label", "score"}, {"id", "error"}
    assert [set(line) for line in said.lines] == [answer, error, answer, error, answer]
    assert said.lines[1] == {"id": 2, "error": "lines.txt, line 2 is empty."}
    assert said.lines[::2] == with_ids(library.load(model).predict(["good", "bad", "fine film"]), [1, 3, 5])
    assert "2 of 5 rows could not be answered; their lines say why." in said.err


def test_format_overrides_the_file_name(model, tmp_path):
    expected = library.load(model).predict(["good", "bad"])
    for name, format, text, ids in [
        ("a.dat", "text", "good\nbad\n", [1, 2]),
        ("a.txt", "csv", "text,n\ngood,1\nbad,2\n", [2, 3]),  # the header is line 1
        ("a.out", "jsonl", '{"text": "good"}\n{"text": "bad"}\n', [1, 2]),
    ]:
        (tmp_path / name).write_text(text)
        said = weft("predict", model, "--file", tmp_path / name, "--format", format)
        assert said.lines == with_ids(expected, ids)


def test_blank_lines_at_the_beginning_are_skipped_when_columns_are_guessed(model, tmp_path):
    said = weft("predict", model, "--file", write_lines(tmp_path / "lines.txt", [""] * 450 + ["good"]))
    assert len(said.lines) == 451 and ["error" in line for line in said.lines] == [True] * 450 + [False]


def test_lines_in_another_encoding_are_errors_and_the_others_answered(model, tmp_path):
    (tmp_path / "mixed.txt").write_bytes(b"good\ncaf\xe9\nbad\n")
    said = weft("predict", model, "--file", tmp_path / "mixed.txt")
    assert said.lines[1] == {"id": 2, "error": "mixed.txt, line 2 is not UTF-8 at byte 4."}
    assert len(weft("predict", model, "--file", tmp_path / "mixed.txt", "--encoding", "latin-1").lines) == 3


def test_broken_rows_of_json_are_errors_and_the_others_answered(model, tmp_path):
    rows = ['{"text": "good"}', "no JSON", '{"text": 5}', '{"txt": "bad"}', "[1]", '{"text": "\\ud800"}']
    said = weft("predict", model, "--file", write_lines(tmp_path / "rows.jsonl", rows))
    assert "label" in said.lines[0]
    assert [line["error"] for line in said.lines[1:]] == [
        "rows.jsonl, line 2 is not JSON (Expecting value at character 1).",
        "rows.jsonl, line 3 has a text of type int instead of a text.",
        "rows.jsonl, line 4 has an empty text.",
        "rows.jsonl, line 5 is not a JSON object, but a list.",
        "rows.jsonl, line 6 has half of a surrogate pair, which is not text.",
    ]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_the_gold_column_makes_no_difference(ending, model, tmp_path):
    def written(name, rows):
        if ending == "jsonl":
            return write_rows(tmp_path / f"{name}.jsonl", rows)
        between = "," if ending == "csv" else "\t"
        cells = [list(rows[0]), *([row["text"].replace(",", ""), *list(row.values())[1:]] for row in rows)]
        return write_lines(tmp_path / f"{name}.{ending}", [between.join(row) for row in cells])

    rows = rows_of("classify", 6)
    with_gold = weft("predict", model, "--file", written("gold", rows))
    without = weft("predict", model, "--file", written("given", [without_gold(row) for row in rows]))
    assert len(with_gold.lines) == 6 and with_gold.out == without.out


def test_answers_are_json_whatever_letters_standard_output_has(tuned, tmp_path):
    file = write_lines(tmp_path / "lines.txt", ["José lives 在 北京 😀"])
    command = ["predict", tuned("tag") / "model", "--file", file]
    told = [weft(*command, encoding=name) for name in ("utf-8", "ascii", "latin-1")]
    assert told[0].lines[0]["words"] == ["José", "lives", "在", "北", "京", "😀"]
    assert told[0].lines == told[1].lines == told[2].lines


@pytest.mark.parametrize(("content", "reason"), [
    ("", "holds no rows: it is empty, or has only a header"), ("text\n", "has only a header"),
    ("foo,bar\n1,2\n", "no column that looks like the text. Its columns: foo, bar. Name"),
    ("text,label\ngood\nbad\n", "No row of rows.csv can be used: rows.csv, line 2 has 1 field for 2 columns (2 of"),
    ("good film.,1\nbad,0\n", "looks like data (good film., 1), not like column names. Give it a first line of names"),
    ("text,text\na,b\n", "there is more than one column 'text'"),
])  # fmt: skip
def test_a_file_without_a_row_to_answer_is_refused(content, reason, model, tmp_path):
    (tmp_path / "rows.csv").write_text(content)
    assert reason in weft("predict", model, "--file", tmp_path / "rows.csv").sentence


def test_contradicting_options_are_refused(model, tmp_path):
    file, folder = write_lines(tmp_path / "lines.txt", ["good"]), tmp_path / "folder"
    folder.mkdir()
    for arguments, reason in [
        ([], "Give either texts or --file"),
        (["good", "--file", file], "Give either texts or --file"),
        ([""], "Text 0 has an empty text"),
        (["good", "  "], "Text 1 has an empty text"),
        (["\udcff"], "Text 0 is not valid Unicode at character 1"),
        (["good", "--resume"], "need --file"),
        (["good", "-o", tmp_path / "out"], "need --file"),
        (["good", "--column", "text=a"], "need --file"),
        (["good", "--format", "csv"], "need --file"),
        (["--file", file, "--format", "cvs"], "--format"),
        (["--file", file, "--format", "text", "--column", "text=a"], "lines.txt has lines only"),
        (["good", "--task", "pair"], "pair takes 2 texts together (text, second), not 1"),
        (["--file", file, "--resume"], "--resume goes with --output"),
        (["--file", file, "--json"], "the predictions need a file: --output"),
        (["--file", file, "--column", "text=a"], "lines.txt has lines only"),
        (["--file", file, "--encoding", "utf-9"], "There is no encoding 'utf-9'"),
        (["--file", tmp_path / "line.txt"], "does not exist (did you mean lines.txt?)"),
        (["--file", folder], "is an empty folder"),
        (["--file", file, "-o", folder], "folder is not a file; the predictions need one"),
        (["--file", file, "-o", tmp_path / "no/where"], "no/where cannot be written: there is no folder"),
        (["--file", file, "-o", file], "is the input; the predictions need another file"),
    ]:
        assert reason in weft("predict", model, *arguments).sentence
    assert file.read_text() == "good\n"


def test_python_gets_the_same_sentences(model):
    loaded = library.load(model)
    for wrong in (None, 5, b"good", [b"good"], ["good", 5], "", [[]], {"txt": "good"}, "\ud800", [["good"]]):
        with pytest.raises(InputError):
            loaded.predict(wrong)
    assert loaded.predict([]) == []
    assert [loaded.predict("good")] == loaded.predict(iter(["good"])) == loaded.predict([{"text": "good"}])


def test_a_tuple_is_a_pair_or_a_sentence_and_else_a_list(tuned):
    assert "label" in library.load(tuned("pair") / "model").predict(("good", "bad"))
    assert library.load(tuned("tag") / "model").predict(("Anna", "lives"))["words"] == ["Anna", "lives"]
    assert len(library.load(tuned("classify") / "model").predict(("good", "bad"))) == 2


@pytest.fixture
def numbered(tuned, tmp_path):
    """A model whose answers repeat what they answer, and a file whose every line is another."""
    lines = [f"Anna lives in room {number}" for number in range(40)]
    lines[7] = lines[30] = ""
    return tuned("tag") / "model", write_lines(tmp_path / "lines.txt", lines)


@pytest.fixture
def stopped(numbered, tmp_path, monkeypatch):
    """Answers that end after the third piece of ten rows, and the command that wrote them."""
    model, file = numbered
    output = tmp_path / "answers.jsonl"
    answered, pieces = predict_file._answered, []

    def stop(*arguments, **options):
        pieces.append(1)
        if len(pieces) == 4:
            raise KeyboardInterrupt
        return answered(*arguments, **options)

    monkeypatch.setattr(predict_file, "examples_at_once", lambda task: 10)
    with monkeypatch.context() as patch:
        patch.setattr(predict_file, "_answered", stop)
        assert weft("predict", model, "--file", file, "-o", output).code == 130
    return output, ["predict", model, "--file", file, "-o", output]


@pytest.mark.parametrize("cut", [0, 1, 5, 100, 500, 2000])
def test_a_resumed_file_is_the_same_as_an_unbroken_one(cut, stopped):
    """Wherever its end was lost: between lines, in one, or all of it."""
    output, command = stopped
    assert len(output.read_text().splitlines()) == 30
    whole = weft(*command[:-2]).out
    output.write_bytes(output.read_bytes()[: -cut or None])
    before = output.read_bytes().count(b"\n")
    said = weft(*command, "--resume", "--json")
    assert json.loads(said.out) == {"rows": 40, "before": before, "failed": 2 - (before > 7), "output": str(output)}
    assert output.read_text() == whole
    assert [file.name for file in output.parent.iterdir() if file.name.startswith(".")] == []


def test_output_of_another_request_is_not_resumed(stopped, tuned, tmp_path):
    output, command = stopped
    output.write_bytes(output.read_bytes()[:-3])
    held = output.read_bytes()
    _, model, _, file, *_ = command
    other = write_lines(tmp_path / "other.txt", ["good"] * 40)
    another = tmp_path / "another"
    shutil.copytree(model, another)
    said = json.loads((another / "weft.json").read_text())
    said["files"]["model.safetensors"]["sha256"] = "0"
    (another / "weft.json").write_text(json.dumps(said))
    for arguments, what in [
        ([model, "--file", other], "input"),
        ([another, "--file", file], "model"),
        ([tuned("intent") / "model", "--file", file], "model"),
        ([model, "--file", file, "--details"], "details"),
        ([model, "--file", file, "--with-text"], "with text"),
        ([model, "--file", file, "--encoding", "latin-1"], "encoding"),
    ]:
        said = weft("predict", *arguments, "-o", output, "--resume")
        assert f"answers.jsonl was begun with another {what}: choose another file." in said.sentence
    assert "exists already: continue it with --resume, or choose another file." in weft(*command).sentence
    assert output.read_bytes() == held


def test_a_file_that_is_not_ours_is_not_touched(numbered, tmp_path):
    model, file = numbered
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\nwithout an end")
    said = weft("predict", model, "--file", file, "-o", notes, "--resume")
    assert "notes.txt has 1 lines, which are not the answers to" in said.sentence
    held = file.read_bytes()
    said = weft("predict", model, "--file", file, "-o", file, "--resume")
    assert "is the input; the predictions need another file" in said.sentence
    assert notes.read_text() == "my notes\nwithout an end" and file.read_bytes() == held


def test_resuming_a_finished_output_does_nothing(numbered, tmp_path):
    model, file = numbered
    output = tmp_path / "answers.jsonl"
    command = ["predict", model, "--file", file, "-o", output, "--resume", "--json"]
    assert json.loads(weft(*command).out)["before"] == 0
    held = output.read_bytes()
    assert json.loads(weft(*command).out) == {"rows": 40, "before": 40, "failed": 0, "output": str(output)}
    assert output.read_bytes() == held
    write_lines(file, [*file.read_text().splitlines(), "one more"])
    assert "40 lines, which are not the answers to" in weft(*command).sentence


def test_a_killed_process_loses_none_and_repeats_none(tuned, tmp_path):
    lines = [f"Anna lives in room {number}" for number in range(20_000)]
    file, output = write_lines(tmp_path / "lines.txt", lines), tmp_path / "answers.jsonl"
    command = ["predict", tuned("tag") / "model", "--file", file, "-o", output, "--resume"]
    process = subprocess.Popen([sys.executable, "-m", "weft", *command], stderr=subprocess.DEVNULL)
    least = random.Random(0).randrange(1_000_000)  # bytes, of about 2,000,000
    while process.poll() is None and (not output.exists() or output.stat().st_size < least):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = output.read_bytes().count(b"\n")
    assert 0 < before < len(lines)
    said = weft(*command, "--json")
    assert json.loads(said.out)["before"] == before
    answered = [" ".join(json.loads(line)["words"]) for line in output.read_text().splitlines()]
    assert answered == lines


def test_two_processes_do_not_write_one_file(numbered, tmp_path):
    model, file = numbered
    output = tmp_path / "answers.jsonl"
    command = ["predict", model, "--file", file, "-o", output]
    with locked(output.with_name(f".{output.name}.lock"), "unused"):
        assert "is being written by another process" in weft(*command).sentence
        assert not output.exists()
    assert weft(*command).code == 0
    assert not list(tmp_path.glob(".answers*"))


def test_a_reader_that_stops_early_causes_no_traceback(model, tmp_path):
    file = write_lines(tmp_path / "lines.txt", texts_of(6000))
    command = [sys.executable, "-m", "weft", "predict", model, "--file", file]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "label" in json.loads(process.stdout.readline())
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 1


MEASURE = """
import resource, sys
from pathlib import Path
import weft
from weft.recipe.finetune import DataSection
from weft.tasks.loaded import LoadedModel
from weft.tasks.judging.predict_file import predict_file

peaks = []
def write(lines):
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

model = LoadedModel.load(Path(sys.argv[1]))
predict_file(model, Path(sys.argv[2]), None, DataSection(), write)
print(*peaks)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is the system's")
def test_memory_does_not_grow_with_the_file(model, tmp_path):
    file = write_lines(tmp_path / "lines.txt", texts_of(20_000))
    done = subprocess.run([sys.executable, "-c", MEASURE, model, file], capture_output=True, text=True)
    peaks = [int(peak) for peak in done.stdout.split()]  # KB, after each piece of 256 rows
    assert len(peaks) == 79, done.stderr
    assert peaks[-1] - peaks[16] < 8_000
