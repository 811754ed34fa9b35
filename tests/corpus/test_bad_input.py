"""Whatever is in a file, `weft corpus` ends: the document is skipped and counted, or a sentence says what is wrong."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from test_corpus import paragraph

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
    import pyarrow.parquet as parquet

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
        ({"a.txt": GOOD}, ["a.txt", "--documents", "page"], "documents cannot be 'page'"),
        ({"a.txt": GOOD}, ["a.txt", "--languages", "klingon"], "is not a language"),
        ({"a.txt": GOOD}, ["a.txt", "--validation", "1.5"], "number of characters|cannot spare|leave nothing"),
        ({"a.yml": "corpus: {sources: [{path: a.txt}], build: {filters: {}}}"}, ["a.yml"], "did you mean filter"),
        ({"a.yml": "corpus: {sources: [{path: a.txt}]}"}, ["a.yml", "--mask"], "--mask goes with sources"),
    ],
)
def test_what_a_user_can_put_right_is_one_sentence(files, arguments, reason, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(tmp_path, *arguments)
    import re

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
