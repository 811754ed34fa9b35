"""Numbered labels and tags get names; files of rows may have any name."""

import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest

from row_files import contents
from weft.errors import InputError
from weft.recipe.finetune import DataSection
from weft.sources.rows import read_rows
from weft.tasks.labelled.data import read_split
from weft.tasks.labelled.label_names import with_names
from weft.tasks.tag import Tag

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CONLL = "-DOCSTART- -X- -X- O\n\nU.N. NNP I-NP I-ORG\nofficial NN I-NP O\n\nEkeus NNP I-NP I-PER\n"


def parquet(features):
    table = pyarrow.table({"tokens": [["Ada", "sat"]], "ner_tags": [[1, 0]], "label": [3]})
    target = io.BytesIO()
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), target)
    return target.getvalue()


@pytest.mark.parametrize("wrap", [
    lambda label: {"feature": label, "_type": "Sequence"}, lambda label: {"feature": label, "_type": "List"},
    lambda label: [label],
])  # fmt: skip
def test_the_names_of_a_class_label_are_read_from_the_schema(place, wrap):
    label = {"names": NAMES, "_type": "ClassLabel"}
    file = place("train.parquet", parquet({"ner_tags": wrap(label), "label": label, "tokens": {"dtype": "string"}}))
    assert contents(read_rows(file)) == [{"tokens": ["Ada", "sat"], "ner_tags": ["B-PER", "O"], "label": "B-LOC"}]


def test_a_schema_without_names_leaves_numbers(place):
    for features in ({}, {"ner_tags": {"names": 3}}, {"ner_tags": None}, []):
        assert contents(read_rows(place("train.parquet", parquet(features))))[0]["ner_tags"] == [1, 0]


def test_numbered_tags_get_the_names_of_the_recipe(place):
    rows = [{"tokens": ["Ada", "sat"], "ner_tags": [1, 0]}, {"tokens": ["x"], "ner_tags": [9]}]
    file = place("train.jsonl", "\n".join(map(json.dumps, rows)).encode())
    split = read_split(Tag(), [file], DataSection(labels=NAMES))
    assert [example.gold for example in split.examples] == [("B-PER", "O")]
    assert "names 0 to 4" in split.problems.sentences()[0]
    with pytest.raises(InputError, match=r"tags that are numbers; give their names with finetune\.data\.labels"):
        read_split(Tag(), [file], DataSection())


@pytest.mark.parametrize("name", ["eng.train", "eng.testa", "eng.testb.gz", "train"])
def test_the_files_of_conll_2003_are_known_by_how_they_begin(place, name):
    data = CONLL.encode()
    file = place(name, gzip.compress(data) if name.endswith(".gz") else data)
    assert [row["words"] for row in contents(read_rows(file))] == [["U.N.", "official"], ["Ekeus"]]
    assert len(contents(read_rows([file, file]))) == 4  # and do not run in parallel


def test_a_format_holds_whatever_the_name_is(place):
    file = place("eng.data", CONLL.split("\n\n", 1)[1].encode())
    with pytest.raises(InputError, match=r"finetune\.data\.format=conll"):
        read_rows(file)
    assert [row["tags"] for row in contents(read_rows(file, format="conll"))] == [["I-ORG", "O"], ["I-PER"]]
    rows = place("rows.txt", b'{"a": 1}\n')
    assert contents(read_rows(rows, format="jsonl")) == [{"a": 1}]


@pytest.mark.parametrize("label", ["--1", "1-", "9" * 5000, "-", "²", "1.0"])
def test_labels_that_only_look_like_numbers_stay_as_they_are(label):
    assert with_names({"label": label}, NAMES) == {"label": label}
