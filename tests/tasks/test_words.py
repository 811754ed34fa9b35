"""Words and their tags: cut from texts, told from plain tags, and found again where they stand."""

import json
import re

import pytest

import weft as library
from small_tasks import finetune, report_of, rows_of, weft, write_rows
from weft.tasks.answer import INSIDE_A_WORD, WRONG_START, Answer
from weft.tasks.cutting import OLD, Cutter
from weft.tasks.example import Example
from weft.tasks.predicted_tags import entities
from weft.tasks.tag import ILL_FORMED, Tag
from weft.tasks.words import OVERLAP, WIDENED, places_of, read_words

SPOKEN = {"words": "flights at 8:30 from st. petersburg", "tags": "O O B-time O B-city I-city"}


def test_a_text_is_cut_for_an_answer_as_it_was_for_training():
    values = [SPOKEN, {"words": "to st. paul", "tags": "O B-city I-city"}]
    train = [Tag().example(row, with_gold=True) for row in values]
    task = Tag().with_labels_from(train).fitted(train)
    asked = [task.example(row, with_gold=False) for row in values]
    assert [one.given for one in asked] == [one.given for one in train] and asked[0].given[2] == "8:30"
    again = Tag(task.labels).with_settings(task.settings())
    assert again.example(SPOKEN, with_gold=False).given == asked[0].given


def test_a_text_whose_words_are_a_list_in_training_is_cut_where_these_would_be():
    train = [Tag().example({"words": ["at", "8:30", "."], "tags": ["O", "B-time", "O"]}, with_gold=True)]
    task = Tag().with_labels_from(train).fitted(train)
    assert task.example({"words": "at noon."}, with_gold=False).given == ("at", "noon", ".")


def test_chinese_that_is_set_apart_in_training_is_still_cut_into_characters():
    rows = [{"words": "我 爱 北 京", "tags": "O O B-地 I-地"}, {"words": "气 温 3.5 度", "tags": "O O O O"}]
    task = Tag().with_labels_from([Tag().example(row, with_gold=True) for row in rows])
    assert task.example({"words": "我爱北京"}, with_gold=False).given == ("我", "爱", "北", "京")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("He lives in the U.S.", ["He", "lives", "in", "the", "U", ".", "S", "."]),
        ("नई दिल्ली में।", ["नई", "दिल्ली", "में", "।"]),
        ("cafe\u0301 _x_ 北京a", ["cafe\u0301", "_x_", "北", "京", "a"]),
        ("مُحَمَّد هنا", ["مُحَمَّد", "هنا"]),
    ],
)
def test_models_of_earlier_versions_cut_texts_so(text, words):
    assert list(Cutter(OLD).words(text)) == words
    assert [text[start:end] for start, end in places_of(words, text)] == words


def test_an_entity_of_a_text_is_a_part_of_it():
    text = "In the U.S. and in the U.S."
    tags = ["O"] * 2 + ["B-LOC", *["I-LOC"] * 3] + ["O"] * 3 + ["B-LOC", *["I-LOC"] * 3]
    first, second = entities(Example(read_words(text, Cutter(OLD)), None, text=text), tags)
    assert first == {"text": "U.S.", "kind": "LOC", "start": 2, "end": 6, "characters": [7, 11]}
    assert second == {"text": "U.S.", "kind": "LOC", "start": 9, "end": 13, "characters": [23, 27]}
    assert entities(Example(read_words(text, Cutter(OLD)), None), tags)[1]["text"] == "U . S ."


def test_bare_tags_are_learnt_and_judged_as_entities(tmp_path):
    rows = [{**row, "tags": [tag[0] for tag in row["tags"]]} for row in rows_of("tag")]
    data = {name: str(write_rows(tmp_path / f"{name}.jsonl", rows)) for name in ("train", "test")}
    said = finetune(tmp_path, "tag", data=data)
    assert "The tags have no kind (B, I, O): all entities get the kind entity." in said.err
    assert "f1" in report_of(tmp_path / "run")["figures"]
    assert library.load(tmp_path / "run/model").labels == ("O", "B-entity", "I-entity")
    assert json.loads(weft("evaluate", tmp_path / "run/model", data["test"], "--json").out)["examples"] == 40


def test_an_entity_that_ends_inside_of_a_word_takes_the_whole_word_and_is_counted():
    example = Tag().example({"words": "in CPL2010 .", "tags": [[3, 6, "ORG"]]}, with_gold=True)
    assert example.given == ("in", "CPL2010", ".") and example.gold == ("O", "B-ORG", "O")
    assert example.repairs == (WIDENED,)


def test_a_misspelt_tag_costs_its_sentence_and_no_more(tmp_path):
    rows = rows_of("tag", 200)
    rows[7]["tags"] = ["PER", "O", "O", "B-LOC", "I-LOC"]
    data = {name: str(write_rows(tmp_path / f"{name}.jsonl", rows)) for name in ("train", "test")}
    said = finetune(tmp_path / "a", "tag", "--json", data=data)
    found = json.loads(said.out)
    assert "f1" in found["figures"] and found["examples"] == 199
    assert "has the tag 'PER', which is neither O nor an entity tag such as B-PER or I-PER." in said.err
    assert re.search(r"train.jsonl\D+8 has", said.err)


def test_a_tagger_with_a_crf_can_be_saved_again(tmp_path):
    assert finetune(tmp_path, "tag", crf=True).code == 0
    model = library.load(tmp_path / "run/model")
    text = "Anna lives in New York"
    before = model.predict(text)
    model.save(tmp_path / "copy")
    assert library.load(tmp_path / "copy").predict(text) == before
    files = [(folder / "crf.safetensors").read_bytes() for folder in (tmp_path / "run/model", tmp_path / "copy")]
    assert files[0] == files[1]
    assert weft("predict", tmp_path / "copy", text).lines == [before]


def test_an_answer_that_is_off_is_the_one_that_is_nearest():
    context = "In 1990 it began, and in 1990, again."
    example = Answer().example(
        {"question": "When again?", "context": context, "answers": [{"text": "1990", "answer_start": 26}]},
        with_gold=True,
    )
    assert context[25:29] == "1990" and example.gold[0].start == 25 and example.repairs == (WRONG_START,)


@pytest.mark.parametrize(
    ("context", "answer", "start", "mended"),
    [
        ("The party loved art.", "art", 16, ()),
        ("The party was late.", "art", 5, (INSIDE_A_WORD,)),
        ("C++ is older than C#.", "C", 0, ()),
        ("我住在北京。", "北京", 3, ()),
        ("दिन और दि", "दि", 7, ()),
    ],
)
def test_an_answer_without_a_place_is_looked_for_among_whole_words_first(context, answer, start, mended):
    values = {"question": "What?", "context": context, "answers": answer}
    example = Answer().example(values, with_gold=True)
    assert example.gold[0].start == start and example.repairs == mended


def test_answers_that_are_off_are_counted(tmp_path):
    rows = rows_of("answer")
    for row in rows[:3]:
        row["answers"][0]["answer_start"] += 1
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    data["validation"] = str(write_rows(tmp_path / "dev.jsonl", rows_of("answer", 4)))
    said = finetune(tmp_path, "answer", data=data)
    assert said.code == 0
    assert f"Repaired: train.jsonl, line 1 {WRONG_START} (3 of this kind)." in said.err
    assert report_of(tmp_path / "run")["mended"] == {"train": [f"train.jsonl, line 1 {WRONG_START} (3 of this kind)."]}
    assert "<h2>Rows repaired</h2>" in (tmp_path / "run/report.html").read_text()


def test_tags_and_overlapping_entities_that_are_mended_are_counted(tmp_path):
    rows = [{"words": "Anna lives in New York", "tags": [[0, 4, "PER"], [14, 22, "LOC"]]} for _ in range(8)]
    rows[2]["tags"].append([18, 22, "LOC"])
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    data["validation"] = str(write_rows(tmp_path / "dev.jsonl", rows[:2]))
    test = [{"words": ["Anna", "Bob"], "tags": ["O", "I-PER"]}, {"words": ["Bob"], "tags": ["B-PER"]}]
    data["test"] = str(write_rows(tmp_path / "test.jsonl", test))
    said = finetune(tmp_path, "tag", data=data)
    assert said.code == 0, said.err
    mended = report_of(tmp_path / "run")["mended"]
    assert mended == {"train": [f"train.jsonl, line 3 {OVERLAP}."], "test": [f"test.jsonl, line 1 {ILL_FORMED}."]}
    again = weft("evaluate", tmp_path / "run/model", data["test"], "--json")
    assert json.loads(again.out)["mended"] == mended["test"]


def test_a_decoder_cannot_learn_that_there_is_no_answer(tmp_path):
    rows = rows_of("answer")
    rows[3]["answers"] = []
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    model = {"family": "gpt2", "layers": 1, "width": 32, "heads": 2}
    assert "Some questions have no answer" in finetune(tmp_path / "a", "answer", data=data, model=model).sentence


def test_a_vocabulary_is_learnt_from_texts_and_not_from_labels(tmp_path):
    rows = [{**row, "label": f"{row['label']}qqzz"} for row in rows_of("classify")]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    assert finetune(tmp_path / "a", "classify", data=data).code == 0
    assert "qq" not in (tmp_path / "a/run/tokenizer/tokenizer.json").read_text()
    assert not (tmp_path / "a/run/texts.txt").exists()
