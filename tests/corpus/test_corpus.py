"""Corpora out of small files: everything is accounted for, and the bytes do not depend on how the work was done."""

import hashlib
import json
import os
import random
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from weft.corpus import first_pass, passes, plan
from weft.corpus.build import build_corpus
from weft.corpus.clean import Cleaning, clean
from weft.errors import FolderError, InputError, RecipeError
from weft.recipe.corpus import CorpusSection
from weft.sources.documents import scan
from weft.sources.files import find_files
from weft.sources.reading import Reading

ROOT = Path(__file__).parents[2]
WORDS = (ROOT / "examples/austen.txt").read_text("utf-8").split()


def paragraph(number, words=90):
    return " ".join(WORDS[number * words : (number + 1) * words])


def edited(text, seed):
    """With one of its words changed: 81 of 93 rows of five words are still the same."""
    words = text.split()
    words[random.Random(seed).randrange(len(words))] = f"changed{seed}"
    return " ".join(words)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table of 300 good documents with 60 copies, some of them edited; blocks of text with junk among them."""
    place = tmp_path_factory.mktemp("place")
    good = [paragraph(number) for number in range(300)]
    copies = [good[number] if number % 2 else edited(good[number], number) + " And more." for number in range(60)]
    lines = [json.dumps({"text": text}) for text in good + copies]
    (place / "a.jsonl").write_text("\n".join([*lines[:200], "not JSON", '{"other": 1}', *lines[200:]]) + "\n")
    junk = ["Short.", "1 2 3 4 5 " * 50, "# # # " * 60]
    blocks = [paragraph(number) for number in range(290, 400)] + junk
    (place / "b.txt").write_text("\n\n".join(blocks) + "\n")
    return place


def section(*sources, splits=None, documents="block", **build_settings):
    tree = {
        "sources": [source if isinstance(source, dict) else {"path": source} for source in sources],
        "splits": splits or {"validation": 0.1, "test": 0.1},
        "documents": documents,
        "build": build_settings,
    }
    return CorpusSection.model_validate(tree)


def rows(folder, part="*"):
    found = []
    for file in sorted(folder.glob(f"{part}/**/*.parquet")):
        found += parquet.read_table(file).to_pylist()
    return found


def kept(folder):
    return [(split, row) for split in ("train", "validation", "test") for row in rows(folder, split)]


def texts(folder):
    return [row["text"] for _, row in kept(folder)]


def tree_of(folder):
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def built(place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "PIECE_BYTES", 20_000)
        build_corpus(section("a.jsonl", "b.txt"), place, folder, workers=1)
    return folder


def test_every_document_is_kept_once_or_dropped_for_a_reason(built):
    facts = json.loads((built / "weft.json").read_text())["counts"]
    stayed, dropped = kept(built), rows(built, "dropped")
    assert facts["documents"] == len(stayed)
    assert facts["documents_read"] == len(stayed) + len(dropped) == 362 + 113
    reasons = [row["reason"] for row in dropped]
    assert {reason: reasons.count(reason) for reason in set(reasons)} == facts["dropped"]
    assert facts["dropped"]["unreadable"] == 2
    assert facts["dropped"]["exact duplicate"] >= 30 + 10  # planted in the table; the same in both sources
    assert facts["dropped"]["near duplicate"] >= 30
    assert len({row["id"] for _, row in stayed}) == len(stayed)


def test_of_copies_the_longest_is_kept(built):
    stayed = texts(built)
    for number in range(0, 60, 2):  # the edited copy has more words
        assert paragraph(number) not in stayed
        assert edited(paragraph(number), number) + " And more." in stayed


def test_lineage_leads_back_to_the_text(built, place):
    for _, row in kept(built)[::7]:
        unit = "block" if row["file"] == "b.txt" else "file"
        found = [d for d in scan(place / row["file"], Reading(unit)) if getattr(d, "number", None) == row["number"]]
        assert [clean(document.text, Cleaning()).text for document in found] == [row["text"]]


def test_copies_name_the_document_that_was_kept(built):
    ids = {row["id"] for _, row in kept(built)}
    copies = [row for row in rows(built, "dropped") if "duplicate" in row["reason"]]
    assert copies
    assert all(row["detail"] in ids for row in copies)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_bytes_are_the_same_at_any_number_of_workers(workers, built, place, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "PIECE_BYTES", 20_000)
    build_corpus(section("a.jsonl", "b.txt"), place, tmp_path / "corpus", workers=workers)
    assert tree_of(tmp_path / "corpus") == tree_of(built)


def test_pieces_of_any_size_hold_the_same_documents(built, place, tmp_path):
    """As one piece. The files are cut elsewhere, the documents, their numbers and their sides are the same."""
    build_corpus(section("a.jsonl", "b.txt"), place, tmp_path / "corpus", workers=1)
    for part in ("train", "validation", "test", "dropped"):
        found, known = rows(tmp_path / "corpus", part), rows(built, part)
        assert sorted(found, key=str) == sorted(known, key=str)


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("moment", ["filter_piece", "choose_documents", "write_piece", "put_in_place"])
def test_a_build_that_was_stopped_goes_on(moment, built, place, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "PIECE_BYTES", 20_000)
    real, calls, made, filter_into = getattr(passes, moment), [], [], first_pass._filter_into

    def stops(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3 or moment in ("choose_documents", "put_in_place"):
            raise Stopped
        return real(*arguments, **options)

    monkeypatch.setattr(passes, moment, stops)
    with pytest.raises(Stopped):
        build_corpus(section("a.jsonl", "b.txt"), place, tmp_path / "corpus", workers=1)
    assert not (tmp_path / "corpus").exists()
    done = len(list(tmp_path.rglob("figures.json")))
    assert done
    monkeypatch.setattr(passes, moment, real)
    monkeypatch.setattr(first_pass, "_filter_into", lambda *arguments: made.append(1) or filter_into(*arguments))
    build_corpus(section("a.jsonl", "b.txt"), place, tmp_path / "corpus", workers=1)
    assert len(made) == len({file.name for file in built.glob("*/**/*.parquet")}) - done
    assert tree_of(tmp_path / "corpus") == tree_of(built)
    assert [item.name for item in tmp_path.iterdir()] == ["corpus"]


def test_a_finished_build_is_not_done_again_but_a_changed_one_is(place, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes((place / "a.jsonl").read_bytes())
    folder = tmp_path / "corpus"
    first = build_corpus(section("a.jsonl"), tmp_path, folder)
    stamp = (folder / "weft.json").stat().st_mtime_ns
    (folder / "notes.txt").write_text("mine")
    assert build_corpus(section("a.jsonl"), tmp_path, folder) == first
    assert "up to date" in capsys.readouterr().err
    assert (folder / "weft.json").stat().st_mtime_ns == stamp
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(json.dumps({"text": paragraph(500)}) + "\n")
    again = build_corpus(section("a.jsonl"), tmp_path, folder)
    assert again["documents"] == first["documents"] + 1
    assert (folder / "notes.txt").read_text() == "mine"


def test_copies_that_are_kept_never_straddle_the_split(place, tmp_path):
    settings = section("a.jsonl", deduplicate={"keep": "all"}, splits={"validation": 0.3, "test": 0.3})
    build_corpus(settings, place, tmp_path / "corpus")
    sides = {row["text"]: split for split, row in kept(tmp_path / "corpus")}
    assert len(set(sides.values())) == 3
    pairs = [(paragraph(n), edited(paragraph(n), n) + " And more.") for n in range(0, 60, 2)]
    assert all(sides[one] == sides[other] for one, other in pairs)


def test_another_seed_is_another_split_of_the_same_documents(place, tmp_path):
    sides = []
    for seed in (0, 0, 1):
        build_corpus(section("a.jsonl", seed=seed), place, tmp_path / f"{len(sides)}")
        sides.append([row["id"] for row in rows(tmp_path / f"{len(sides)}", "validation")])
    assert sides[0] == sides[1] != sides[2]
    assert sorted(texts(tmp_path / "0")) == sorted(texts(tmp_path / "2"))


def test_books_are_cut_and_every_source_is_in_every_split(place, tmp_path):
    (tmp_path / "book.txt").write_text(" ".join(WORDS[:20_000]))
    (tmp_path / "b.txt").write_bytes((place / "b.txt").read_bytes())
    entries = [{"path": "book.txt", "documents": "file", "name": "book", "weight": 3.0}, {"path": "b.txt"}]
    build_corpus(section(*entries), tmp_path, tmp_path / "corpus")
    for split in ("train", "validation", "test"):
        assert {row["source"] for row in rows(tmp_path / "corpus", split)} == {"book", "b.txt"}
    parts = [row["text"] for _, row in kept(tmp_path / "corpus") if row["source"] == "book"]
    assert "".join("".join(parts).split()) == "".join(WORDS[:20_000])


def test_test_sets_are_kept_out_of_the_corpus(place, tmp_path):
    inside = " ".join(paragraph(7).split()[20:50])
    (tmp_path / "tests.tsv").write_text(f"question\tanswer\n{inside}\tyes\nToo short.\tno\n")
    (tmp_path / "a.jsonl").write_bytes((place / "a.jsonl").read_bytes())
    against = [{"path": "tests.tsv", "text": "question"}]
    dropped = section("a.jsonl", decontaminate={"against": against})
    facts = build_corpus(dropped, tmp_path, tmp_path / "dropped")
    assert facts["dropped"]["contaminated"] == 1  # its copy is dropped as one
    assert not any(inside in text for text in texts(tmp_path / "dropped"))
    flagged = section("a.jsonl", decontaminate={"against": against, "action": "flag"})
    build_corpus(flagged, tmp_path, tmp_path / "flagged")
    marked = [row["text"] for _, row in kept(tmp_path / "flagged") if row["contaminated"]]
    assert len(marked) == 1 and inside in marked[0]
    report = json.loads((tmp_path / "flagged/report.json").read_text())["tests"]
    assert (report["texts"], report["short"], report["found"]) == (2, 1, 1)


def test_languages_and_thresholds_are_the_recipes(place, tmp_path):
    german = "Der Hund und die Katze sind in dem Haus, das von dem Mann mit der Frau zu sehen ist. " * 2
    lines = [paragraph(1), paragraph(2)[:200], german]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    none = {"validation": 0.0}
    build_corpus(section("a.jsonl", splits=none, languages=["en"], filter=None), tmp_path, tmp_path / "en")
    assert texts(tmp_path / "en") == lines[:2]
    build_corpus(section("a.jsonl", splits=none, languages=["en"]), tmp_path, tmp_path / "usual")
    assert texts(tmp_path / "usual") == lines[:1]
    loose = {"least_words": 10, "repeated_rows": None, "common_rows": [[2, 0.9]]}
    build_corpus(section("a.jsonl", splits=none, filter=loose), tmp_path, tmp_path / "loose")
    assert len(texts(tmp_path / "loose")) == 3


@pytest.mark.parametrize("unit", ["line", "block", "file"])
def test_a_file_that_is_cut_gives_the_documents_of_the_whole(unit, tmp_path):
    chance = random.Random(3)
    lines = ["word " * chance.randrange(12) for _ in range(3000)]  # some are blank
    (tmp_path / "a.txt").write_text("\n".join(lines), newline=chance.choice(["\n", "\r\n"]))
    read = {**plan.find_corpus_sources(section("a.txt", documents=unit), tmp_path, {})[0].read, "longest": 1000}
    whole = [(d.number, d.text) for d in scan(tmp_path / "a.txt", Reading(**read))]
    assert len(whole) > 20
    for size in (100, 5000, 10**6):
        facts = plan.inspect({"file": str(tmp_path / "a.txt"), "read": read, "piece": size})
        found = []
        for parts in plan.cut_into_pieces([plan.Inspected(**facts)]):
            found += [(d.number, d.text) for _, d in build_scan(parts, read)]
        assert found == whole


def build_scan(parts, read):
    from dataclasses import asdict

    from weft.corpus.first_pass import _scan

    return _scan({"parts": [{**asdict(part), "shown": part.file} for part in parts], "read": read})


def test_what_is_wrong_is_said_before_any_work(place, tmp_path):
    cases = [
        (section("a.jsonl", "a.jsonl"), "is the same as"),
        (section("nothing.txt"), "does not exist"),
        (section("a.jsonl", languages=["english"]), "is not a language"),
        (section({"path": "a.jsonl", "encoding": "utf-99"}), "no encoding"),
        (section({"path": "a.jsonl", "name": "x"}, {"path": "b.txt", "name": "x"}), "two sources have the name x"),
        (section("list.urls"), "does not exist"),
    ]
    for wrong, reason in cases:
        with pytest.raises((InputError, RecipeError), match=reason):
            build_corpus(wrong, place, tmp_path / "corpus")
    assert not list(tmp_path.iterdir())
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    with pytest.raises(FolderError, match="holds other things"):
        build_corpus(section("a.jsonl"), place, tmp_path / "other")


def test_a_file_of_two_sources_belongs_to_the_first(place, tmp_path):
    build_corpus(section("a.jsonl", "."), place, tmp_path / "corpus")
    inputs = parquet.read_table(tmp_path / "corpus/inputs.parquet").to_pylist()
    assert [entry["file"] for entry in inputs] == ["a.jsonl", "b.txt"]


def test_the_reason_is_said_when_nothing_is_left(tmp_path):
    (tmp_path / "a.txt").write_text("Too short.\n")
    with pytest.raises(InputError, match=r"No document is left of 1 \(1 length\)"):
        build_corpus(section("a.txt"), tmp_path, tmp_path / "corpus")
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(InputError, match="No document is left"):
        build_corpus(section("b.txt"), tmp_path, tmp_path / "corpus")


def test_a_corpus_is_read_by_its_training_part_alone(built):
    files = find_files([built])
    assert files and all("train" in file.parts for file in files)


def test_the_same_folder_with_other_settings_is_another_corpus(place, tmp_path):
    first = build_corpus(section("b.txt"), place, tmp_path / "corpus")
    second = build_corpus(section("b.txt", filter=None), place, tmp_path / "corpus")
    assert second["documents"] == first["documents"] + 3
    assert build_corpus(section("b.txt"), place, tmp_path / "corpus") == first


def test_copies_in_a_small_source_are_on_the_side_of_the_large_one(place, tmp_path):
    """Of a few documents those with the lowest hashes are held out, of many those below a border."""
    few = [json.dumps({"text": paragraph(number)}) for number in range(100, 110)]
    (tmp_path / "few.jsonl").write_text("\n".join(few))
    (tmp_path / "a.jsonl").write_bytes((place / "a.jsonl").read_bytes())
    settings = section("a.jsonl", "few.jsonl", deduplicate={"keep": "all"}, splits={"validation": 0.1, "test": 0.0})
    build_corpus(settings, tmp_path, tmp_path / "corpus")
    sides = {}
    for split, row in kept(tmp_path / "corpus"):
        sides.setdefault(row["id"], set()).add(split)
    assert all(len(found) == 1 for found in sides.values())


def test_empty_rows_are_counted(tmp_path):
    lines = [json.dumps({"text": text}) for text in (paragraph(1), "", "  ", paragraph(2))]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n\n")
    facts = build_corpus(section("a.jsonl"), tmp_path, tmp_path / "corpus")
    assert facts["documents_read"] == 4
    assert facts["dropped"] == {"empty": 2}


def test_names_and_titles_that_are_no_text_do_no_harm(tmp_path):
    page = f"""<html><head><script type="application/ld+json">{{"@type": "Article", "headline": "A title \\ud83d"}}
    </script></head><body><article><p>{paragraph(1)}</p><p>{paragraph(2)}</p></article></body></html>"""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "page.html").write_text(page)
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text(paragraph(5))
    facts = build_corpus(section("texts", documents="file", splits={"validation": 0.0}), tmp_path, tmp_path / "corpus")
    assert facts["documents"] == 2
    assert sorted(row["file"] for _, row in kept(tmp_path / "corpus")) == ["texts/caf?.txt", "texts/page.html"]


def test_a_corpus_inside_its_source_is_not_read(place, tmp_path):
    (tmp_path / "b.txt").write_bytes((place / "b.txt").read_bytes())
    first = build_corpus(section("."), tmp_path, tmp_path / "corpus")
    assert build_corpus(section("."), tmp_path, tmp_path / "corpus") == first


def test_a_source_of_which_little_is_left_goes_to_training(place, tmp_path):
    (tmp_path / "few.jsonl").write_text("\n".join(json.dumps({"text": paragraph(n)}) for n in (500, 501)))
    (tmp_path / "a.jsonl").write_bytes((place / "a.jsonl").read_bytes())
    build_corpus(section("few.jsonl", "a.jsonl"), tmp_path, tmp_path / "corpus")
    assert len(list((tmp_path / "corpus/train").iterdir())) == 2
    assert [item.name for item in (tmp_path / "corpus/test").iterdir()] == ["a.jsonl"]
