"""Text files as one document, as lines or as blocks."""

import json

import pytest

from weft.errors import InputError
from weft.sources.documents import read_documents
from weft.sources.reading import Reading

TEXT = "One line.\nAnother.\n\n\nA second block.\r\n\r\nThird,\nin two lines.\n"


def texts(folder, unit, text=TEXT, **options):
    (folder / "a.txt").write_bytes(text.encode())
    return [document.text for document in read_documents([folder / "a.txt"], Reading(unit, **options))]


def test_a_file_is_a_document_or_its_lines_or_its_blocks(tmp_path):
    assert texts(tmp_path, "file") == [TEXT]
    assert texts(tmp_path, "line") == ["One line.", "Another.", "A second block.", "Third,", "in two lines."]
    assert texts(tmp_path, "block") == ["One line.\nAnother.", "A second block.", "Third,\nin two lines."]


def test_json_lines_stay_one_document_each(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in ("a\n\nb", "", "c")) + "\n\n")
    assert [d.text for d in read_documents([tmp_path / "a.jsonl"], Reading("block"))] == ["a\n\nb", "c"]


@pytest.mark.parametrize("unit", ["line", "block"])
def test_a_line_without_end_is_refused(tmp_path, unit):
    with pytest.raises(InputError, match="line 2 has no end in 1,000 bytes"):
        texts(tmp_path, unit, "short\n" + "x" * 1001, most_line=1000)
