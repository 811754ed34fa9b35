"""`-` is standard input: rows stream from it, and commands that read twice work on a copy."""

import io
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from row_files import contents
from weft.corpus.build import build_corpus
from weft.corpus.manifest import INPUT_LIST
from weft.errors import InputError
from weft.recipe.corpus import CorpusSection
from weft.recipe.file import check_section
from weft.sources import standard_input
from weft.sources.documents import read_documents
from weft.sources.rows import read_rows
from weft.sources.standard_input import STANDARD_INPUT, standard_input_as_file, texts_or_file
from weft.tokenizer.build import build_tokenizer


@pytest.fixture
def pipe(monkeypatch):
    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def test_rows_of_standard_input_are_lines_of_text_unless_a_format_is_given(pipe):
    pipe(b"one\ntwo\n")
    assert contents(read_rows(Path("-"))) == [{"text": "one"}, {"text": "two"}]
    pipe(b'{"a": 1}\n')
    assert contents(read_rows(Path("-"), format="jsonl")) == [{"a": 1}]
    pipe(b"a\tb\n1\t2\n3\n")
    good, bad = read_rows("-", format="tsv")
    assert good.values == {"a": "1", "b": "2"}
    assert bad.place == "standard input, line 3"


def test_rows_of_standard_input_come_before_its_end_is_there(pipe, monkeypatch):
    class Endless(io.BytesIO):
        def readline(self, size=-1):
            return b"again\n"

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Endless()))
    assert next(iter(read_rows(Path("-")))).values == {"text": "again"}


def test_standard_input_is_read_once(pipe):
    pipe(b"one\n")
    assert len(contents(read_rows(Path("-")))) == 1
    with pytest.raises(InputError, match="only once"):
        list(read_rows(Path("-")))


def test_a_copy_of_standard_input_is_a_file_while_it_is_needed(pipe, tmp_path):
    pipe(b"one\n")
    with standard_input_as_file([tmp_path, Path("-")], "jsonl") as (other, copy):
        assert other == tmp_path
        assert copy.suffix == ".jsonl" and copy.read_bytes() == copy.read_bytes() == b"one\n"
    assert not copy.exists()


def test_a_copy_of_standard_input_has_a_limit(pipe, monkeypatch):
    monkeypatch.setattr(standard_input, "MOST_COPIED", 100)
    pipe(b"x" * 101)
    with pytest.raises(InputError, match="longer than 100 bytes"), standard_input_as_file([Path("-")]):
        pass


def test_without_standard_input_the_error_says_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="no standard input"):
        list(read_rows(Path("-")))


def test_a_corpus_is_built_from_standard_input_and_known_again(pipe, tmp_path, capsys):
    tree = {"sources": [{"path": "-"}], "splits": {"validation": 0.0}, "build": {"filter": None}}
    section = check_section(CorpusSection, tree, "corpus")
    for _ in range(2):
        pipe(b"One sentence here.")
        facts = build_corpus(section, tmp_path, tmp_path / "corpus", workers=1)
        assert facts["documents"] == 1
    assert "is up to date" in capsys.readouterr().err
    inputs = pyarrow.parquet.read_table(tmp_path / "corpus" / INPUT_LIST)
    assert inputs["file"].to_pylist() == ["standard-input.txt"]


def test_a_corpus_of_json_lines_from_standard_input_needs_the_format(pipe, tmp_path):
    pipe(b'{"text": "One sentence here."}\n')
    tree = {"sources": [{"path": "-", "format": "jsonl"}], "splits": {"validation": 0.0}, "build": {"filter": None}}
    build_corpus(check_section(CorpusSection, tree, "corpus"), tmp_path, tmp_path / "corpus", workers=1)
    assert [document.text for document in read_documents([tmp_path / "corpus"])] == ["One sentence here."]


def test_a_tokenizer_is_learnt_from_standard_input(pipe, tmp_path):
    pipe(b"abc abd\n")
    report = build_tokenizer([Path("-")], tmp_path / "tokenizer", "char")
    assert report["vocabulary"] == len(set("abc abd\n")) + len(("<unk>", "<|endoftext|>"))


def test_a_single_dash_among_the_texts_is_standard_input():
    assert texts_or_file(["-"], None) == ([], STANDARD_INPUT)
    assert texts_or_file(["-", "a"], None) == (["-", "a"], None)
    assert texts_or_file(None, Path("a.txt")) == ([], Path("a.txt"))
