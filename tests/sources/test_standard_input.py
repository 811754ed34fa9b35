"""`-` is standard input: rows stream from it, and commands that read twice work on a copy."""

import io
import sys
from pathlib import Path

import pytest

from row_files import contents
from weft.errors import InputError
from weft.sources import standard_input
from weft.sources.rows import read_rows
from weft.sources.standard_input import standard_input_as_file


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
