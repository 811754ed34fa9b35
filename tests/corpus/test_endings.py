"""A file whose ending is not known is counted and named, or refused, or read as it is said to be; never guessed."""

import json
import zipfile

import pytest

from test_corpus import paragraph, section
from weft.corpus.build import build_corpus
from weft.errors import InputError
from weft.recipe.corpus import CorpusSection
from weft.recipe.file import check_section
from weft.sources.documents import read_documents
from weft.sources.files import list_files
from weft.tokenizer.build import build_tokenizer
from weft.train.data import find_training_sources

UNKNOWN = ("b.xml", "c.epub", "d.epub", "README")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text(paragraph(1))
    for name in UNKNOWN:
        (tmp_path / "texts" / name).write_text(paragraph(len(name)))
    with zipfile.ZipFile(tmp_path / "texts/e.zip", "w") as archive:
        archive.writestr("in.txt", paragraph(2))
        archive.writestr("in.epub", "x")
    return tmp_path


def test_a_folder_names_what_it_does_not_read_and_the_report_counts_it(folder, capsys):
    none = {"validation": 0.0}
    facts = build_corpus(section("texts", documents="file", splits=none), folder, folder / "corpus", workers=1)
    assert facts["documents"] == 2
    assert facts["passed_over"] == {".epub": 3, ".xml": 1, "none": 1}
    said = capsys.readouterr().err
    assert "4 files with an ending that is not known (" in said
    report = json.loads((folder / "corpus/report.json").read_text())
    assert sorted(report["passed_over"]) == sorted(UNKNOWN)
    assert "5 files were not read" in (folder / "corpus/report.html").read_text()


def test_training_from_sources_says_the_same(folder, capsys):
    tree = {"sources": [{"path": "texts"}]}
    (source,) = find_training_sources(check_section(CorpusSection, tree, "corpus"), folder, "file")
    assert len(source.files) == 2
    assert "c.epub" in capsys.readouterr().err
    build_tokenizer([folder / "texts"], folder / "tokenizer", "char")
    said = capsys.readouterr().err
    assert "c.epub" in said and "in.epub" in said


@pytest.mark.parametrize("name", UNKNOWN)
def test_named_by_itself_it_is_refused_unless_a_format_is_given(folder, name):
    with pytest.raises(InputError, match=r"ending that is not known .*format: text"):
        list_files([folder / "texts" / name])
    section = check_section(CorpusSection, {"sources": [{"path": f"texts/{name}", "format": "text"}]}, "corpus")
    (source,) = find_training_sources(section, folder, "file")
    assert list(source.texts("train")) != []


def test_a_pattern_passes_over_what_a_folder_does(folder):
    listing = list_files([folder / "texts/*"])
    assert sorted(file.name for file in listing.passed_over) == sorted(UNKNOWN)


def test_a_pattern_of_files_that_cannot_be_read_says_why(folder):
    with pytest.raises(InputError, match=r"\*\.epub matches no file .*ending that is not known.*format: text"):
        build_corpus(section("texts/*.epub"), folder, folder / "corpus", workers=1)


def test_a_format_holds_for_every_file_of_its_source(tmp_path):
    (tmp_path / "x.txt").write_text('{"text": "one"}\n')
    (tmp_path / "y.data").write_text('{"text": "two"}\n')
    section = check_section(CorpusSection, {"sources": [{"path": ".", "format": "jsonl"}]}, "corpus")
    (source,) = find_training_sources(section, tmp_path, "file")
    assert [document.text for document in read_documents(source.files, source.reading)] == ["one", "two"]
