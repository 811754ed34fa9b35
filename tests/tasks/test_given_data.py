"""How labelled data is read that a command names, beside the recipe of its model."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.tasks.given_data import given_section


@pytest.fixture
def model():
    data = {"train": ["a.dat", "b.dat"], "test": "c.dat.gz", "encoding": "latin-1", "format": "csv", "text": "said"}
    facts = {"recipe": {"finetune": {"data": data}}}
    return SimpleNamespace(required_task=SimpleNamespace(roles=("text", "label")), facts=facts)


def test_files_called_like_those_of_the_recipe_are_read_like_them(model, capsys):
    section = given_section({}, None, None, model, [Path("new.dat")])
    assert (section.encoding, section.format, section.text) == ("latin-1", "csv", "said")
    assert "new.dat is read as latin-1" in capsys.readouterr().err


def test_other_files_are_read_as_their_endings_say(model, capsys):
    for paths in ([Path("new.jsonl")], [Path("new.dat"), Path("new.tsv")], [Path("-")]):
        section = given_section({}, None, None, model, paths)
        assert (section.encoding, section.format, section.text) == ("utf-8", None, "said")
    assert "is read as" not in capsys.readouterr().err


def test_what_is_said_now_counts(model):
    section = given_section({"text": "other"}, "utf-8", "tsv", model, [Path("new.dat")])
    assert (section.encoding, section.format, section.text) == ("utf-8", "tsv", "other")
