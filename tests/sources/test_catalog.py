"""One table of formats: recipes, commands, documents and rows agree on it."""

import json
from typing import get_args

import pytest
import typer

from row_files import contents
from weft.cli import app
from weft.errors import InputError
from weft.recipe.corpus import Format
from weft.recipe.finetune import RowFormat
from weft.sources.documents import read_documents
from weft.sources.formats.catalog import DOCUMENT_FORMATS, FORMATS, ROW_FORMATS, cut_unit, document_format
from weft.sources.reading import Reading
from weft.sources.rows import read_rows


def test_recipes_name_the_formats_of_the_table():
    by_ending_only = {"markdown"}  # it is read as text
    assert set(get_args(Format)) == {one.name for one in FORMATS if one.for_documents} - by_ending_only
    assert set(get_args(RowFormat)) == {one.name for one in FORMATS if one.for_rows}


def test_an_ending_has_one_format():
    endings = [ending for one in FORMATS for ending in one.endings]
    assert len(endings) == len(set(endings))
    assert all(DOCUMENT_FORMATS[ending] is ROW_FORMATS[ending] for ending in DOCUMENT_FORMATS.keys() & ROW_FORMATS)


@pytest.mark.parametrize("command", ["corpus", "tokenizer", "evaluate", "predict"])
def test_every_command_that_reads_files_takes_a_format(command):
    assert "format" in {option.name for option in typer.main.get_command(app).commands[command].params}


@pytest.mark.parametrize("name", ["data", "data.bin", "data.txt", "data.csv"])
def test_a_format_comes_before_the_ending_for_documents_and_for_rows(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"text": "one"}) + "\n")
    documents = read_documents([tmp_path / name], Reading(format="jsonl"))
    assert [document.text for document in documents] == ["one"]
    assert contents(read_rows(tmp_path / name, format="jsonl")) == [{"text": "one"}]


@pytest.mark.parametrize(
    ("name", "reading", "unit"),
    [
        ("a.jsonl", Reading(), "line"),
        ("a.txt", Reading("line"), "line"),
        ("a.md", Reading("block"), "block"),
        ("a.txt", Reading("file", longest=100), "file"),
        ("a.txt", Reading("file"), None),
        ("a.txt.gz", Reading("line"), None),
        ("a.csv", Reading("line"), None),
        ("a.csv", Reading(format="jsonl"), "line"),
        ("a.zip", Reading(format="jsonl"), None),
    ],
)
def test_only_plain_files_of_lines_or_long_texts_are_cut(name, reading, unit):
    assert cut_unit(name, reading) == unit


def test_the_ending_of_compression_does_not_hide_the_format():
    assert document_format("News.JSONL.gz", Reading()).name == "jsonl"


def test_a_pattern_stands_for_files_of_rows_that_follow_each_other(tmp_path):
    for name in ("train-1.jsonl", "train-0.jsonl", "test-0.jsonl"):
        (tmp_path / name).write_text(json.dumps({"file": name}) + "\n")
    assert contents(read_rows(tmp_path / "train-*.jsonl")) == [{"file": "train-0.jsonl"}, {"file": "train-1.jsonl"}]
    with pytest.raises(InputError, match="does not exist"):
        read_rows(tmp_path / "dev-*.jsonl")


def test_lines_of_a_pattern_of_texts_follow_each_other(tmp_path):
    """They are one place; only places of a list are parallel."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    assert contents(read_rows(tmp_path / "*.txt")) == [{"text": "one"}, {"text": "two"}]
