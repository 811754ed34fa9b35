"""A corpus knows what it was made from and with, however much that is."""

import json

import pytest

from test_corpus import Stopped, paragraph, section, tree_of
from weft.corpus import build, passes, plan
from weft.corpus.build import build_corpus, corpus_summary
from weft.corpus.manifest import library_versions, shards_of, write_manifest
from weft.folders import changed_files, known_facts


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "PIECE_BYTES", 5_000)
    lines = [json.dumps({"text": paragraph(number)}) for number in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_corpus_of_600_000_files_opens(tmp_path):
    count = 600_000
    hashed = {"bytes": 10**6, "sha256": "0" * 64}
    inputs = ({"source": "web", "file": f"crawl/2026-11/segment-{n:07}.warc.gz", **hashed} for n in range(count))
    files = ({"file": f"train/web/{n:06}.parquet", **hashed} for n in range(count))
    write_manifest(tmp_path, {"kind": "corpus", "counts": {"documents": 1}}, inputs, files)
    assert (tmp_path / "weft.json").stat().st_size < 10_000
    assert corpus_summary(tmp_path)["documents"] == 1
    assert changed_files(tmp_path) == []
    assert sum(1 for _ in shards_of(tmp_path, known_facts(tmp_path))) == count + 2


def test_a_lost_shard_is_made_again(place, capsys):
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    whole = tree_of(place / "corpus")
    next((place / "corpus/train").rglob("*.parquet")).unlink()
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    assert tree_of(place / "corpus") == whole and "up to date" not in capsys.readouterr().err


def test_a_corpus_with_its_lists_in_weft_json_is_still_one(place, capsys):
    """As they were written before."""
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    folder = place / "corpus"
    facts = known_facts(folder)
    old = {name: {"bytes": size, "sha256": ""} for name, size in shards_of(folder, facts) if "/" in name}
    (folder / "weft.json").write_text(json.dumps({**facts, "inputs": [], "files": old}))
    (folder / "inputs.parquet").unlink()
    (folder / "files.parquet").unlink()
    build_corpus(section("a.jsonl"), place, folder, workers=1)
    assert "up to date" in capsys.readouterr().err and corpus_summary(folder)["documents"] == 30


def test_a_stopped_build_never_goes_on_with_other_libraries(place, monkeypatch, capsys):
    real, calls = passes.filter_piece, []

    def stops(piece):
        calls.append(piece)
        if len(calls) == 3:
            raise Stopped
        return real(piece)

    monkeypatch.setattr(passes, "filter_piece", stops)
    with pytest.raises(Stopped):
        build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    now = {**library_versions(), "ftfy": "99.0"}
    monkeypatch.setattr(build, "library_versions", lambda: now)
    done = len(calls)
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    said = capsys.readouterr().err
    assert f"it had ftfy {library_versions()['ftfy']} (now 99.0)" in said and "starts from the beginning" in said
    assert [piece["number"] for piece in calls[done:]] == list(range(len(calls) - done))
    assert known_facts(place / "corpus")["versions"]["ftfy"] == "99.0"


def test_a_finished_corpus_stays_and_says_what_it_was_made_with(place, monkeypatch, capsys):
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    now = {**library_versions(), "lxml": "99.0"}
    monkeypatch.setattr(build, "library_versions", lambda: now)
    build_corpus(section("a.jsonl"), place, place / "corpus", workers=1)
    assert "up to date. It was made with lxml" in capsys.readouterr().err
