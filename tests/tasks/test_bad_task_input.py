"""Data that is not as it should be: what can be used is used, the rest is counted and told."""

import json
from collections import Counter

import pytest

from small_tasks import finetune, learnt, refused, report_of, rows_of, weft, write_rows
from weft.tasks.answer import Answer, Gold

pytestmark = pytest.mark.usefixtures("one_thread")


INFINITE, NAN = float("inf"), float("nan")
UNKNOWN = "has entities of an unknown form; give start, end and label of each"
ANNA = {"question": "Who?", "context": "Anna saw Anna."}
BROKEN = {  # rows that cannot be used, and why
    "classify": [
        ({"text": "", "label": "pos"}, "has an empty text"),
        ({"text": " \t", "label": "pos"}, "has an empty text"),
        ({"label": "pos"}, "has an empty text"),
        ({"text": 5, "label": "pos"}, "has a text of type int instead of a text"),
        ({"text": "good", "label": None}, "has no label"),
        ({"text": "good", "label": ""}, "has no label"),
        ({"text": "good", "label": "NaN"}, "has no label"),
        ({"text": "good", "label": NAN}, "has no label (NaN)"),
        ({"text": "good", "label": ["pos"]}, "has a label of type list instead of a text or a number"),
        ({"text": "good", "label": {}}, "has a label of type dict instead of a text or a number"),
    ],
    "several": [
        ({"text": "good", "label": [None]}, "has no label"),
        ({"text": "good", "label": 5}, "has labels of type int instead of a list"),
    ],
    "pair": [
        ({"text": "good", "second": "", "label": "yes"}, "has an empty second text"),
        ({"text": None, "second": "bad", "label": "yes"}, "has an empty first text"),
    ],
    "similarity": [
        ({"text": "a", "second": "b", "score": "much"}, "has the score 'much', which is not a number"),
        ({"text": "a", "second": "b", "score": None}, "has no score"),
        ({"text": "a", "second": "b", "score": INFINITE}, "has the score inf, which is not finite"),
    ],
    "tag": [
        ({"words": ["Anna", "runs"], "tags": ["O"]}, "has 2 words but 1 tags"),
        ({"words": [], "tags": []}, "has no words"),
        ({"words": ["Anna"], "tags": None}, "has no tags"),
        ({"words": ["Anna"], "tags": [3.5]}, "has tags that are not a list of names such as B-PER"),
        (
            {"words": ["Anna"], "tags": [3]},
            "has tags that are numbers; give their names with finetune.data.labels: [O, B-PER, …]",
        ),
        ({"words": ["Anna", 3], "tags": ["O", "O"]}, "has words that are not a list of texts"),
        (
            {"words": "Anna", "tags": [{"start": 9, "end": 12, "label": "PER"}]},
            "has an entity at characters 9 to 12, where the text has no word",
        ),
        ({"words": "Anna", "tags": [{"start": INFINITE, "end": 4, "label": "PER"}]}, UNKNOWN),
        ({"words": "Anna", "tags": [{"begin": 0, "end": 4, "label": "PER"}]}, UNKNOWN),
        ({"words": "Anna", "tags": [{"start": 0, "end": 4}]}, "has no label"),
    ],
    "answer": [
        (
            {**ANNA, "answers": [{"text": "Bob", "answer_start": 0}]},
            "has the answer 'Bob', which is not in its context",
        ),
        ({**ANNA, "answers": None}, "has no answers"),
        (
            {**ANNA, "answers": {"text": None, "answer_start": 4}},
            "has answers with unequal numbers of text and answer_start",
        ),
        (
            {**ANNA, "answers": {"text": ["Anna"], "answer_start": []}},
            "has answers with unequal numbers of text and answer_start",
        ),
        ({**ANNA, "answers": [{"text": "Anna", "answer_start": "0"}]}, "has an answer without text and answer_start"),
        ({**ANNA, "answers": ["Bob"]}, "has the answer 'Bob', which is not in its context"),
        ({**ANNA, "answers": ["Anna", 5]}, "has an answer without text and answer_start"),
        ({"question": "", "context": "Anna", "answers": []}, "has an empty question"),
        ({"question": "Who?", "context": " ", "answers": []}, "has an empty context"),
    ],
    "translate": [
        ({"source": "", "target": "Katze"}, "has an empty source"),
        ({"source": "cat"}, "has an empty target"),
    ],
    "intent": [
        ({"words": ["play"], "tags": ["O"], "intent": None}, "has no intent"),
        ({"words": ["play", "jazz"], "tags": ["O"], "intent": "music"}, "has 2 words but 1 tags"),
    ],
}


@pytest.mark.parametrize("task", BROKEN)
def test_rows_that_cannot_be_used_are_counted_by_reason_and_the_others_learnt_from(task, tmp_path):
    rows, broken = rows_of(task, 20), [row for row, _ in BROKEN[task]]
    train = write_rows(tmp_path / "train.jsonl", rows + broken + broken)
    report = learnt(tmp_path, task, data={"train": str(train), "validation": str(train)})
    assert report["cost"]["training_examples"] == report["examples"] == len(rows)
    counts, first = Counter(reason for _, reason in BROKEN[task]), {}
    for line, (_, reason) in enumerate(BROKEN[task], len(rows) + 1):
        first.setdefault(reason, line)
    sentences = [f"train.jsonl, line {first[reason]} {reason} ({2 * counts[reason]} of this kind)." for reason in first]
    assert report["left_out"] == {"train": sentences, "validation": sentences}
    assert "Rows left out" in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize("task", BROKEN)
def test_if_no_row_can_be_used_there_is_no_run(task, tmp_path):
    train = write_rows(tmp_path / "train.jsonl", [row for row, _ in BROKEN[task]])
    roles = {role: role for role in rows_of(task, 1)[0]}
    sentence = refused(tmp_path, task, data={"train": str(train), **roles})
    assert sentence.startswith(f"No row of train.jsonl can be used: train.jsonl, line 1 {BROKEN[task][0][1]}")


def test_an_answer_whose_place_is_off_is_looked_for_in_its_context(tmp_path):
    rows = rows_of("answer", 10)
    for number, row in enumerate(rows):
        row["answers"][0]["answer_start"] += number - 5
    report = learnt(tmp_path, "answer", data={"train": str(write_rows(tmp_path / "train.jsonl", rows))})
    assert report["left_out"] == {} and report["cost"]["training_examples"] == 9


def test_answers_may_be_plain_texts():
    row = {"question": "Who?", "context": "Tom saw Anna Berg.", "answers": ["Anna Berg", " Anna "]}
    assert Answer().example(row, with_gold=True).gold == (Gold("Anna Berg", 8), Gold("Anna", 8))


@pytest.mark.parametrize(("task", "strange", "reason"), [
    ("classify", {"text": "so so", "label": "neutral"}, "has the label 'neutral', which is not in the training data"),
    ("several", {"text": "so", "label": ["pos", "new"]}, "has the label 'new', which is not in the training data"),
    ("tag", {"words": ["May"], "tags": ["B-MONTH"]}, "has the tag 'B-MONTH', which is not in the training data"),
    ("intent", {"words": ["stop"], "tags": ["O"], "intent": "stop"}, "has the intent 'stop', which is not in the"),
])  # fmt: skip
def test_labels_that_training_never_had_count_as_wrong_answers(task, strange, reason, tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of(task)))}
    for split, times in (("validation", 1), ("test", 2)):
        (tmp_path / split).mkdir()
        file = write_rows(tmp_path / split / "data.jsonl", rows_of(task, 6) + [strange] * times)
        data[split] = str(file)  # files of the same name
    report = learnt(tmp_path, task, data=data)
    assert report["left_out"] == {}
    assert report["examples"] == 8
    (note,) = [note for note in report["notes"] if "not in the training data" in note]
    assert note.startswith("2 of the 8 examples of data.jsonl have labels that are not in the training data.")
    assert f"data.jsonl, line 7 {reason}" in note
    data["test"] = str(write_rows(tmp_path / "six.jsonl", rows_of(task, 6)))
    known = learnt(tmp_path / "known", task, data=data)
    for name in {"accuracy", "exact", "intent"} & set(report["figures"]) - ({"accuracy"} if task == "tag" else set()):
        assert report["figures"][name] == pytest.approx(known["figures"][name] * 6 / 8), name
    nothing = write_rows(tmp_path / "strange.jsonl", [strange])
    sentence = refused(tmp_path / "none", task, data={**data, "validation": str(nothing)})
    assert (
        f"No row of strange.jsonl can be used: strange.jsonl, line 1 {reason}" in sentence
        and " Known labels: " in sentence
    )


def test_lines_in_another_encoding_are_left_out_or_read_as_it(tmp_path):
    file = tmp_path / "train.csv"
    file.write_bytes(b"text,label\n" + b"good,pos\nbad,neg\ncaf\xe9,pos\n" * 5)
    report = learnt(tmp_path / "utf-8", "classify", data={"train": str(file)})
    assert report["left_out"] == {"train": ["train.csv, line 4 is not UTF-8 at byte 4 (5 of this kind)."]}
    report = learnt(tmp_path / "latin", "classify", data={"train": str(file), "encoding": "latin-1"})
    assert report["left_out"] == {}
    wrong = {"train": str(file), "encoding": "latn-1"}
    assert "There is no encoding 'latn-1'" in refused(tmp_path / "none", "classify", data=wrong)


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("train.csv", "", "train.csv holds no rows: it is empty, or has only a header"),
    ("train.csv", "text,label\n", "train.csv holds no rows: it is empty, or has only a header"),
    ("train.csv", "text,label\n" + "good,pos\n" * 9, "All training examples have the label 'pos'; at least two"),
    ("train.csv", "foo,bar\n" + "1,2\n3,4\n" * 9, "no column that looks like the text. Its columns: foo, bar. Name"),
    ("train.csv", "text,label,text\n" + "a,b,c\n" * 9, "there is more than one column 'text'"),
    ("train.csv", "good film.,1\nbad,0\n", "its first line looks like data (good film., 1), not like column names"),
    ("train.xyz", "good", "has an ending that is not known (.xyz)"),
    ("train", "good", "has no ending"),
    ("train.json", "{", "No row of train.json can be used: train.json is not JSON"),
    ("train.jsonl", "[1]\n[5]\n", "line 1 is not a JSON object, but a list (2 of this kind)"),
])  # fmt: skip
def test_a_file_that_nothing_can_be_learnt_from_is_refused(name, content, reason, tmp_path):
    (tmp_path / name).write_text(content)
    assert reason in refused(tmp_path, "classify", data={"train": str(tmp_path / name)})


def test_one_example_leaves_none_to_validate_on(tmp_path):
    train = write_rows(tmp_path / "train.jsonl", rows_of("translate", 1))
    assert "train.jsonl has a single usable example" in refused(tmp_path, "translate", data={"train": str(train)})


@pytest.mark.parametrize(("data", "reason"), [
    ({"text": "txet"}, "train.jsonl has no column txet (did you mean text?). Its columns: text, label"),
    ({"label": ["label", "lable"]}, "train.jsonl has no column lable (did you mean label?)"),
    ({"score": "label"}, "finetune.data.score is not a column of this task"),
    ({"train": "trian.jsonl"}, "trian.jsonl does not exist (did you mean train.jsonl?)"),
    ({"train": []}, "finetune.data.train is missing"), ({"train": ""}, "finetune.data.train is missing"),
    ({"train": "empty"}, "empty is an empty folder"), ({"validation": "empty"}, "empty is an empty folder"),
    ({"validation": "nowhere.csv"}, "nowhere.csv does not exist"), ({"test": "given.jsonl"}, "looks like the label"),
    ({"train": ["train.jsonl", "lines.txt"]}, "lines.txt is lines of text, and "),
    ({"txt": "a"}, "finetune.data.txt is not a setting (did you mean text?)"),
    ({"limit": 0}, "finetune.data.limit cannot be 0"), ({"label": 5}, "finetune.data.label cannot be 5"),
    ({"train": [1]}, "finetune.data.train.0 cannot be 1: input should be a valid string"),
])  # fmt: skip
def test_data_that_is_not_there_is_named(data, reason, tmp_path):
    write_rows(tmp_path / "train.jsonl", rows_of("classify"))
    write_rows(tmp_path / "given.jsonl", [{"text": "good"}])
    (tmp_path / "lines.txt").write_text("good\n")
    (tmp_path / "empty").mkdir()
    assert reason in refused(tmp_path, "classify", data={"train": "train.jsonl", **data})


def test_a_part_is_held_out_and_said_if_there_is_no_validation(tmp_path):
    said = finetune(tmp_path, "classify")
    assert "No validation data is given, so 4 of the 40 examples of train.jsonl are held out." in said.err
    assert report_of(tmp_path / "run")["cost"]["training_examples"] == 36


@pytest.mark.parametrize("seed", range(4))
def test_what_is_held_out_may_have_the_only_example_of_a_label(seed, tmp_path):
    rows = [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg"}]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    learnt(tmp_path, "classify", data=data, seed=seed, baseline=True)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["id2label"] == {"0": "neg", "1": "pos"}


def test_several_labels_are_the_same_as_lists_in_one_cell_or_in_columns(tmp_path):
    rows = rows_of("several")
    names = ("neg", "odd", "pos")
    lists = {"train": str(write_rows(tmp_path / "lists.jsonl", rows))}
    cells = tmp_path / "cells.tsv"
    cells.write_text("text\tlabel\n" + "".join(f"{row['text']}\t{' / '.join(row['label'])}\n" for row in rows))
    flags = tmp_path / "flags.tsv"
    flags.write_text("\t".join(("text", *names)) + "\n")
    with flags.open("a") as file:
        for row in rows:
            file.write("\t".join((row["text"], *("1" if name in row["label"] else "0" for name in names))) + "\n")
    in_one, in_many = {"train": str(cells), "separator": "/"}, {"train": str(flags), "label": list(names)}
    reports = [
        learnt(tmp_path / str(number), "several", data=data) for number, data in enumerate((lists, in_one, in_many))
    ]
    assert reports[0]["figures"] == reports[1]["figures"] == reports[2]["figures"]
    models = [tmp_path / str(number) / "run/model" for number in range(3)]
    assert {(model / "model.safetensors").read_bytes() for model in models} == {
        (models[0] / "model.safetensors").read_bytes()
    }
    for model, data in zip(models, (lists, in_one, in_many), strict=True):
        found = weft("evaluate", model, data["train"], "--column", "text=text", "--json")
        assert json.loads(found.out)["examples"] == len(rows)
    wrong = weft("evaluate", models[2], lists["train"], "--column", "label=label").sentence
    assert "lacks one of the label columns neg, odd, pos" in wrong


def test_the_first_label_may_be_missing_where_others_are_lists(tmp_path):
    rows = [{"text": "so so", "label": None}, *rows_of("several")]
    learnt(tmp_path, "several", data={"train": str(write_rows(tmp_path / "train.jsonl", rows))})
    assert len(json.loads((tmp_path / "run/model/config.json").read_text())["id2label"]) == 3


def test_rare_classes_are_shown_and_count_more_if_asked_for(tmp_path):
    rows = [{"text": f"film {number}", "label": "pos" if number % 10 else "neg"} for number in range(40)]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    said = finetune(tmp_path / "plain", "classify", data=data)
    assert "  pos 89%, neg 11%" in said.err
    counts = report_of(tmp_path / "plain/run")["training"]["classes"]
    assert counts == {"pos": 32, "neg": 4}
    assert "32, 88.9%" in (tmp_path / "plain/run/report.html").read_text()
    learnt(tmp_path / "balanced", "classify", data=data, balanced=True)
    losses = [
        json.loads((tmp_path / name / "run/metrics.jsonl").read_text().splitlines()[0])["loss"]
        for name in ("plain", "balanced")
    ]
    assert losses[0] != losses[1]


def test_texts_beyond_the_limit_are_cut_and_said_to_be(tmp_path):
    rows = [*rows_of("classify"), *({"text": "good " * 600, "label": "pos"} for _ in range(4))]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows)), "validation": str(tmp_path / "train.jsonl")}
    said = finetune(tmp_path, "classify", data=data, windows=1)
    sentence = "4 of 44 are longer than 48 tokens: truncated or read in windows."
    assert said.err.count(sentence) == 2  # in training and in evaluation
    assert report_of(tmp_path / "run")["cut"] == 4
