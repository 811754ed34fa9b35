"""Whatever is in a file, `weft corpus` ends: the document is skipped and counted, or a sentence says what is wrong."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from test_corpus import paragraph
from weft.folders import locked

GOOD = paragraph(1)


def run(place, *arguments):
    command = [sys.executable, "-m", "weft", "corpus", *map(str, arguments), "-o", str(place / "corpus"), "--json"]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment)


def packed(kind, name, data):
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
            archive.writestr("good.txt", GOOD)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for member, content in ((name, data), ("good.txt", GOOD.encode())):
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


MANY = (json.dumps({"text": GOOD}) + "\n") * 200
ALL_HELD_OUT = """
corpus:
  sources: [{path: a.jsonl}]
  splits: {validation: 0.999}
  build: {deduplicate: {exact: false, near: false}, filter: null}
"""
SKIPPED = {  # a file beside a good one: why it is skipped
    "latin.txt": (lambda: GOOD.encode() + b" caf\xe9", "UTF-8"),
    "nul.txt": (lambda: GOOD.encode() + b"\0\0", "binary"),
    "cut.txt.gz": (lambda: gzip.compress(os.urandom(10_000))[:-200], "cut off"),
    "bomb.zip": (lambda: packed("zip", "bomb.txt", b"0" * 200_000_000), "bomb"),
    "out.tar.gz": (lambda: packed("tar", "../../etc/out.txt", GOOD.encode()), "leads out"),
    "half.jsonl": (lambda: b'{"text": "\\ud800 half"}\n{"text": 5}\n[1, 2\n', "surrogate"),
    "deep.html": (lambda: b"<html><body>" + b"<div>" * 10_000 + b"x" + b"</div>" * 10_000, ""),
    "empty.txt": (lambda: b"", ""),
    "nothing.zip": (lambda: packed("zip", "picture.png", b"png")[:60], "damaged"),
    "table.parquet": (lambda: b"PAR1 is not enough", "Parquet"),
}


def test_what_cannot_be_read_is_skipped_and_counted(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/good.txt").write_text(GOOD)
    for name, (make, _) in SKIPPED.items():
        (tmp_path / "texts" / name).write_bytes(make())
    done = run(tmp_path, "texts", "--validation", "0.01")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["documents"] == 1
    assert facts["dropped"]["exact duplicate"] == 1  # the good one beside a bad name; behind a bomb nothing is read
    assert facts["dropped"]["unreadable"] >= 9
    rows = [
        row for file in (tmp_path / "corpus/dropped").glob("*.parquet") for row in parquet.read_table(file).to_pylist()
    ]
    for name, (_, reason) in SKIPPED.items():
        details = [row["detail"] for row in rows if Path(row["file"]).name == name]
        assert not reason or any(reason in detail for detail in details), (name, details)


@pytest.mark.parametrize(
    ("files", "arguments", "reason"),
    [
        ({"a.csv": f"id,body\n1,{GOOD}\n"}, ["a.csv"], 'there is no column "text"'),
        ({"a.txt": GOOD}, ["a.txt", "a.txt"], "is the same as"),
        ({"a.txt": GOOD}, ["a.txt", "./a.txt"], "is the same as"),
        ({"a.txt": ""}, ["a.txt"], "No document is left"),
        ({"folder/a.png": "x"}, ["folder"], "holds no text files"),
        ({}, ["nothing.txt"], "does not exist"),
        ({"a.csv": f"id,body\n1,{GOOD}\n", "b.txt": GOOD, "c.txt": GOOD}, ["a.csv", "b.txt"], "there is no column"),
        ({"a.txt": GOOD}, ["a.txt", "--against", "other"], "need: weft corpus report"),
        (
            {"a.jsonl": MANY, "a.yml": ALL_HELD_OUT},
            ["a.yml"],
            "none is left to train",
        ),
        ({"a.txt": GOOD, "a.yml": "{name: .., corpus: {sources: [{path: a.txt}]}}"}, ["a.yml"], "name cannot be"),
        ({"a.txt": GOOD}, ["a.txt", "--documents", "page"], "documents cannot be 'page'"),
        ({"a.txt": GOOD}, ["a.txt", "--languages", "klingon"], "is not a language"),
        ({"a.txt": GOOD}, ["a.txt", "--validation", "1.5"], "number of characters and must be an integer"),
        ({"a.yml": "corpus: {sources: [{path: a.txt}], build: {filters: {}}}"}, ["a.yml"], "did you mean filter"),
        ({"a.yml": "corpus: {sources: [{path: a.txt}]}"}, ["a.yml", "--mask"], "--mask goes with sources"),
    ],
)
def test_what_a_user_can_put_right_is_one_sentence(files, arguments, reason, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert re.search(reason, done.stderr.strip().splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "corpus").exists()


def test_a_line_of_200_megabytes(tmp_path):
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b'{"text": "')
        for _ in range(200):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n')
        file.write(json.dumps({"text": GOOD}).encode() + b"\n")
    done = run(tmp_path, "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 1


def test_what_is_no_file_is_said_or_passed_over(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/good.txt").write_text(GOOD)
    (tmp_path / "texts/broken.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "texts/pipe.txt")
    (tmp_path / "loop").symlink_to("loop")
    for pattern in ("texts", "texts/*"):
        done = run(tmp_path, pattern, "--validation", "0")
        assert done.returncode == 0, done.stderr
    for source in ("texts/broken.txt", "texts/pipe.txt", "loop"):
        done = run(tmp_path, source)
        assert done.returncode == 2
        assert "neither a file nor a folder" in done.stderr


def test_a_corpus_among_the_texts_is_not_read(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("\n\n".join(paragraph(number) for number in range(30)) + "\n\nShort.")
    done = run(tmp_path, "texts", "--documents", "block")
    first = json.loads(done.stdout)
    (tmp_path / "corpus").rename(tmp_path / "texts/earlier")
    (tmp_path / "texts/.hidden").mkdir()
    (tmp_path / "texts/.hidden/b.txt").write_text(paragraph(50))
    done = run(tmp_path, "texts", "--documents", "block")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == first


def test_damaged_reports_are_said(tmp_path):
    (tmp_path / "a.txt").write_text(GOOD)
    run(tmp_path, "a.txt", "--validation", "0")
    whole = json.loads((tmp_path / "corpus/report.json").read_text())
    for damaged in ({**whole, "counts": 3}, {**whole, "funnel": [[1]]}, {**whole, "sources": [1]}):
        (tmp_path / "corpus/report.json").write_text(json.dumps(damaged))
        command = [sys.executable, "-m", "weft", "corpus", "report", str(tmp_path / "corpus")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "damaged" in done.stderr
    (tmp_path / "corpus/report.json").unlink()
    assert "report" in run(tmp_path, "a.txt", "--validation", "0").stdout  # is written again
    assert (tmp_path / "corpus/report.json").is_file()


def test_two_builds_of_one_folder_do_not_meet(tmp_path):
    (tmp_path / "a.txt").write_text(GOOD)
    (tmp_path / ".corpus.work").mkdir()
    with locked(tmp_path / ".corpus.work/lock", "ours"):
        done = run(tmp_path, "a.txt")
    assert done.returncode == 2
    assert "is being built by another process" in done.stderr
