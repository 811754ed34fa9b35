"""Which column plays which role: as said, else by name, else by content; and guesses are told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError
from weft.sources.records import Origin, Record
from weft.tasks.labelled.columns import COLUMN_ROLES, find_columns

CLASSIFY = ("text", "label")
PAIR = ("text", "second", "label")
SEQUENCE = ("source", "target")


def sample(columns: dict[str, list]) -> list[Record]:
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    origin = Origin(Path("train.tsv"))
    return [Record(dict(zip(names, row, strict=True)), origin, line) for line, row in enumerate(rows, 2)]


def find(columns, roles, said=None):
    wanted = [COLUMN_ROLES[name] for name in roles]
    table = sample(columns if isinstance(columns, dict) else {name: ["a", "b", "a", "b"] for name in columns})
    return find_columns(table, wanted, said or {}, "train.tsv")


@pytest.mark.parametrize(("names", "roles", "expected"), [
    ("sentence label", CLASSIFY, "sentence label"),
    ("Label Text_A", CLASSIFY, "Text_A Label"),
    ("index sentence1 sentence2 label", PAIR, "sentence1 sentence2 label"),
    ("gold_label text premise hypothesis", PAIR, "premise hypothesis gold_label"),
    ("id qid1 qid2 question1 question2 is_duplicate label", PAIR, "question1 question2 label"),
    ("genre sentence1 sentence2 score", ("text", "second", "score"), "sentence1 sentence2 score"),
    ("id dialogue summary", SEQUENCE, "dialogue summary"), ("article highlights id", SEQUENCE, "article highlights"),
    ("prompt response", SEQUENCE, "prompt response"), ("question answer", SEQUENCE, "question answer"),
    ("de en", SEQUENCE, "de en"), ("id zh en attribution", SEQUENCE, "zh en"),
    ("id title context question answers", ("context", "question", "answers"), "context question answers"),
    ("sent_id text words lemma upos xpos", ("words", "tags"), "words upos"),
    ("tokens ner_tags id", ("words", "tags"), "tokens ner_tags"),
    ("id text entities", ("words", "tags"), "text entities"),
    ("words tags intent", ("words", "tags", "intent"), "words tags intent"),
])  # fmt: skip
def test_usual_names_are_known(names, roles, expected):
    found, told = find(names.split(), roles)
    assert found == dict(zip(roles, expected.split(), strict=True))
    assert (told == []) == (list(roles) == expected.split())  # text as text is no news


def test_what_was_guessed_is_told_and_what_was_said_is_not():
    names = "sentence label stars".split()
    assert find(names, CLASSIFY)[1] == ["train.tsv: using sentence as text and label as label."]
    assert find(names, CLASSIFY, {"label": "stars"})[1] == ["train.tsv: using sentence as text."]
    assert find(names, CLASSIFY, {"label": "stars", "text": "sentence"})[1] == []


any_names = st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=6, unique=True)


@given(any_names, st.data())
def test_what_is_said_holds_whatever_the_names_are(names, data):
    text, label = data.draw(st.permutations(names))[:2]
    assert find(names, CLASSIFY, {"text": text, "label": label}) == ({"text": text, "label": label}, [])
    several = tuple(data.draw(st.permutations(names))[:2])
    assert find(names, CLASSIFY, {"text": list(several), "label": label})[0] == {"text": several, "label": label}


@given(any_names, st.lists(st.sampled_from(sorted(COLUMN_ROLES)), min_size=1, unique=True), st.data())
def test_no_column_plays_two_roles_and_all_are_there(names, roles, data):
    """Whatever the names, or an error that names them."""
    names += data.draw(
        st.lists(st.sampled_from([word for role in COLUMN_ROLES.values() for word in role.synonyms]), unique=True)
    )
    names = list(dict.fromkeys(names))
    try:
        found, _ = find(names, roles)
    except InputError as error:
        assert "finetune.data." in str(error)
        return
    assert set(found) == set(roles)
    assert len(set(found.values())) == len(roles) and set(found.values()) <= set(names)


def test_half_of_a_pair_brings_the_other_half():
    names = "premise hypothesis text_b label".split()
    assert find(names, PAIR, {"text": "premise"})[0]["second"] == "hypothesis"
    assert find("de en src".split(), SEQUENCE, {"source": "en"})[0]["target"] == "de"


NUMBERS = list(range(40))
STRANGE = {
    "row_id": ["0"] * 39 + ["1"],
    "digest": [f"{number:064x}" for number in NUMBERS],
    "remark": [f"remark {number}" for number in NUMBERS],
    "author": [f"a{number % 7}" for number in NUMBERS],
    "verdict": [number % 3 for number in NUMBERS],
    "part": ["train"] * 40,
}


@given(st.permutations(list(STRANGE)))
def test_content_tells_the_text_and_the_label_where_names_do_not(order):
    found, told = find({name: STRANGE[name] for name in order}, CLASSIFY)
    assert found == {"text": "remark", "label": "verdict"}
    assert told == [
        "train.tsv: using remark as text (the longest column) and verdict as label "
        "(the column with the fewest values)."
    ]  # fmt: skip


def test_a_column_whose_values_never_come_again_is_no_label():
    columns = {"remark": STRANGE["remark"], "other": [f"o{number}" for number in NUMBERS]}
    with pytest.raises(InputError) as caught:
        find(columns, CLASSIFY)
    assert str(caught.value) == (
        "train.tsv has no column that looks like the label. Its columns: remark, other. "
        "Name the column with finetune.data.label in a recipe, or with --column label=… (evaluate, predict, compare), "
        "or rename it to label."
    )


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InputError) as caught:
        find(["sentence", "label"], CLASSIFY, {"text": "sentnce"})
    assert (
        str(caught.value) == "train.tsv has no column sentnce (did you mean sentence?). Its columns: sentence, label."
    )


def test_a_role_that_the_task_does_not_have_is_an_error():
    with pytest.raises(
        InputError,
        match=r"finetune\.data\.lable is not a column of this task \(did you mean label\?\)\. Its columns are text",
    ):
        find(["sentence", "label"], CLASSIFY, {"lable": "label"})


def test_no_rows_are_an_error():
    with pytest.raises(InputError, match="has no usable rows"):
        find({"a": []}, CLASSIFY)


def test_columns_of_any_row_count():
    origin = Origin(Path("x.jsonl"))
    rows = [Record({"text": "a"}, origin, 1), Record({"text": "b", "label": 1}, origin, 2)]
    assert find_columns(rows, [COLUMN_ROLES["label"]], {}, "x.jsonl")[0] == {"label": "label"}
