"""Data and settings that are not as they should be: what can be used is used, the rest is counted and told."""

import json
from collections import Counter
from pathlib import Path

import pytest

from small_tasks import SHAPE, finetune, report_of, rows_of, weft, write_recipe, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def learnt(folder: Path, task: str, **settings) -> dict:
    """The report of a run that must go well."""
    said = finetune(folder, task, **settings)
    assert said.code == 0, said.err
    return report_of(folder / "run")


def refused(folder: Path, task: str, *arguments, **settings) -> str:
    """Why there is no run; nothing is left behind."""
    sentence = finetune(folder, task, *arguments, **settings).sentence
    assert not (folder / "run").exists()
    return sentence


INFINITE, NAN = float("inf"), float("nan")
UNKNOWN = "has entities in a form that is not known; give start, end and label of each"
ANNA = {"question": "Who?", "context": "Anna saw Anna."}
BROKEN = {  # rows that cannot be used, and why
    "classify": [
        ({"text": "", "label": "pos"}, "has an empty text"),
        ({"text": " \t", "label": "pos"}, "has an empty text"),
        ({"label": "pos"}, "has an empty text"),
        ({"text": 5, "label": "pos"}, "has a text of type int"),
        ({"text": "good", "label": None}, "has no label"),
        ({"text": "good", "label": ""}, "has no label"),
        ({"text": "good", "label": "NaN"}, "has no label"),
        ({"text": "good", "label": NAN}, "has no label (it is not a number)"),
        ({"text": "good", "label": ["pos"]}, "has a label of type list"),
        ({"text": "good", "label": {}}, "has a label of type dict"),
    ],
    "several": [
        ({"text": "good", "label": [None]}, "has no label"),
        ({"text": "good", "label": 5}, "has labels of type int, not a list"),
    ],
    "pair": [
        ({"text": "good", "second": "", "label": "yes"}, "has an empty second text"),
        ({"text": None, "second": "bad", "label": "yes"}, "has an empty first text"),
    ],
    "similarity": [
        ({"text": "a", "second": "b", "score": "much"}, "has 'much' as score, which is no number"),
        ({"text": "a", "second": "b", "score": None}, "has no score"),
        ({"text": "a", "second": "b", "score": INFINITE}, "has inf as score, which is no finite number"),
    ],
    "tag": [
        ({"words": ["Anna", "runs"], "tags": ["O"]}, "has 2 words but 1 tags"),
        ({"words": [], "tags": []}, "has no words"),
        ({"words": ["Anna"], "tags": None}, "has no tags"),
        ({"words": ["Anna"], "tags": [3]}, "has tags that are no list of names, such as B-PER"),
        ({"words": ["Anna", 3], "tags": ["O", "O"]}, "has words that are no list of texts"),
        (
            {"words": "Anna", "tags": [{"start": 9, "end": 12, "label": "PER"}]},
            "has an entity at 9 to 12, where its text has no word",
        ),
        ({"words": "Anna", "tags": [{"start": INFINITE, "end": 4, "label": "PER"}]}, UNKNOWN),
        ({"words": "Anna", "tags": [{"begin": 0, "end": 4, "label": "PER"}]}, UNKNOWN),
        ({"words": "Anna", "tags": [{"start": 0, "end": 4}]}, "has no label"),
    ],
    "answer": [
        (
            {**ANNA, "answers": [{"text": "Bob", "answer_start": 0}]},
            "has the answer 'Bob', which does not stand in its context",
        ),
        ({**ANNA, "answers": None}, "has no answers"),
        (
            {**ANNA, "answers": {"text": None, "answer_start": 4}},
            "has answers whose texts and places do not belong together",
        ),
        (
            {**ANNA, "answers": {"text": ["Anna"], "answer_start": []}},
            "has answers whose texts and places do not belong together",
        ),
        ({**ANNA, "answers": [{"text": "Anna", "answer_start": "0"}]}, "has an answer without text and answer_start"),
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
    assert "Left out" in (tmp_path / "run/report.html").read_text()


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


@pytest.mark.parametrize(("task", "strange", "reason"), [
    ("classify", {"text": "so so", "label": "neutral"}, "has the label 'neutral', which training never had"),
    ("several", {"text": "so", "label": ["pos", "new"]}, "has the label 'new', which training never had"),
    ("tag", {"words": ["May"], "tags": ["B-MONTH"]}, "has the tag 'B-MONTH', which training never had"),
    ("intent", {"words": ["stop"], "tags": ["O"], "intent": "stop"}, "has the intent 'stop', which training never had"),
])  # fmt: skip
def test_labels_that_training_never_had_are_left_out_of_validation_and_test(task, strange, reason, tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of(task)))}
    for split, times in (("validation", 1), ("test", 2)):
        (tmp_path / split).mkdir()
        file = write_rows(tmp_path / split / "data.jsonl", rows_of(task, 6) + [strange] * times)
        data[split] = str(file)  # files of the same name
    report = learnt(tmp_path, task, data=data)
    assert report["left_out"] == {
        "validation": [f"data.jsonl, line 7 {reason}."],
        "test": [f"data.jsonl, line 7 {reason} (2 of this kind)."],
    }
    assert report["examples"] == 6
    nothing = write_rows(tmp_path / "strange.jsonl", [strange])
    sentence = refused(tmp_path / "none", task, data={**data, "validation": str(nothing)})
    assert f"No row of strange.jsonl can be used: strange.jsonl, line 1 {reason}. Known are: " in sentence


def test_lines_in_another_encoding_are_left_out_or_read_as_it(tmp_path):
    file = tmp_path / "train.csv"
    file.write_bytes(b"text,label\n" + b"good,pos\nbad,neg\ncaf\xe9,pos\n" * 5)
    report = learnt(tmp_path / "utf-8", "classify", data={"train": str(file)})
    assert report["left_out"] == {"train": ["train.csv, line 4 is not UTF-8 at byte 4 (5 of this kind)."]}
    report = learnt(tmp_path / "latin", "classify", data={"train": str(file), "encoding": "latin-1"})
    assert report["left_out"] == {}
    wrong = {"train": str(file), "encoding": "latn-1"}
    assert "There is no encoding 'latn-1' of text" in refused(tmp_path / "none", "classify", data=wrong)


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("train.csv", "", "train.csv holds no rows: it is empty, or has only a header"),
    ("train.csv", "text,label\n", "train.csv holds no rows: it is empty, or has only a header"),
    ("train.csv", "text,label\n" + "good,pos\n" * 9, "All training examples have the label 'pos': there is nothing to"),
    ("train.csv", "foo,bar\n" + "1,2\n3,4\n" * 9, "no column that is known to be the text. It has: foo, bar. Name it"),
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
    ({"text": "txet"}, "train.jsonl has no column txet (did you mean text?). It has: text, label"),
    ({"label": ["label", "lable"]}, "train.jsonl has no column lable (did you mean label?)"),
    ({"score": "label"}, "finetune.data.score is not used here"),
    ({"train": "trian.jsonl"}, "trian.jsonl does not exist (did you mean train.jsonl?)"),
    ({"train": []}, "finetune.data.train is missing"), ({"train": ""}, "finetune.data.train is missing"),
    ({"train": "empty"}, "empty is an empty folder"), ({"validation": "empty"}, "empty is an empty folder"),
    ({"validation": "nowhere.csv"}, "nowhere.csv does not exist"), ({"test": "given.jsonl"}, "known to be the label"),
    ({"train": ["train.jsonl", "lines.txt"]}, "lines.txt is text, to run in parallel with another"),
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
    assert "No validation data is named: 4 examples of train.jsonl are held out." in said.err
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
    assert "has no column for each label (neg, odd, pos)" in wrong


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
    said = finetune(tmp_path, "classify", data=data)
    assert said.err.count("4 of 44 are longer than 48 tokens: cut, or read in windows.") == 2  # learnt from, judged on
    assert report_of(tmp_path / "run")["cut"] == 4


@pytest.mark.parametrize(("task", "settings", "reason"), [
    ("classify", {"crf": True}, "finetune.crf goes with task tag, not classify"),
    ("similarity", {"balanced": True}, "finetune.balanced goes with classes, not with similarity"),
    ("tag", {"crf": True, "balanced": True}, "finetune.balanced does not go with a CRF"),
    ("tag", {"crf": True, "label_smoothing": 0.1}, "finetune.label_smoothing does not go with a CRF"),
    ("answer", {"label_smoothing": 0.1}, "finetune.label_smoothing goes with classes and texts, not with answer"),
    ("classify", {"prefix": "classify: "}, "finetune.prefix goes with tasks that write, not with classify"),
    ("classify", {"beams": 2}, "finetune.beams goes with tasks that write"),
    ("classify", {"sample": True}, "finetune.sample goes with tasks that write"),
    ("classify", {"max_new_tokens": 5}, "finetune.max_new_tokens goes with tasks that write"),
    ("reply", {"sample": True, "beams": 2}, "finetune.beams is of a search; with sample there is none"),
    ("classify", {"lora_rank": 4}, "finetune.lora_rank goes with tune: lora, not all"),
    ("classify", {"optimizer": "adamw", "matrix_rate": 0.1}, "finetune.matrix_rate is Muon's"),
    ("classify", {"tune": "head", "matrix_rate": 0.1}, "finetune.matrix_rate is Muon's; the optimizer is adamw"),
    ("tag", {"data": {"train": "x", "separator": ","}}, "finetune.data.separator goes with classify and tasks that"),
    ("tag", {"data": {"train": "x", "several": True}}, "finetune.data.several goes with task classify, not tag"),
    ("classify", {"data": {"train": "x", "several": False, "label": ["a"]}}, "finetune.data.several is false, but"),
    ("pair", {"data": {"train": "x", "label": ["a"]}}, "finetune.data.label is a single column in task pair"),
    ("classify", {"model": {"family": "bert", "head": "masked"}}, "finetune.model.head cannot be set"),
    ("classify", {"model": {"family": "bert", "labels": 7}}, "finetune.model.labels cannot be set"),
])  # fmt: skip
def test_a_setting_that_would_do_nothing_is_an_error_before_anything_is_read(task, settings, reason, tmp_path):
    assert reason in refused(tmp_path, task, **settings)


@pytest.mark.parametrize(("change", "reason"), [
    ("task=clasify", "finetune.task cannot be 'clasify': input should be 'classify', 'pair'"),
    ("batch=0", "finetune.batch cannot be 0"), ("batch=-1", "finetune.batch cannot be -1"),
    ("batch=many", "finetune.batch cannot be 'many'"), ("batch=1.5", "finetune.batch cannot be 1.5"),
    ("bath=8", "finetune.bath is not a setting (did you mean batch?)"),
    ("seed=-1", "finetune.seed cannot be -1"), ("seeds=0", "finetune.seeds cannot be 0"),
    ("learning_rate=0", "finetune.learning_rate cannot be 0"), ("learning_rate=.nan", "cannot be nan"),
    ("dropout=1", "finetune.dropout cannot be 1"), ("warmup=-1", "finetune.warmup cannot be -1"),
    ("balanced=yes", "finetune.balanced cannot be 'yes'"), ("tune=none", "finetune.tune cannot be 'none'"),
    ("sequence_length=4", "finetune.sequence_length cannot be 4"), ("patience=0", "finetune.patience cannot be 0"),
    ("budget=soon", "finetune.budget cannot be 'soon': say how long"), ("budget=0 steps", "cannot be '0 steps'"),
    ("budget=-3 steps", "finetune.budget cannot be '-3 steps'"), ("budget=3", "finetune.budget cannot be 3"),
    ("budget=50M", "finetune.budget cannot be '50M'"), ("data=5", "finetune.data cannot be 5: it is a section"),
    ("model=5", "finetune.model cannot be 5"), ("model={}", "finetune.model: give family or path"),
    ("model={size: mini}", "finetune.model: give family or path"), ("model=null", "finetune.model is missing"),
    ("model={familie: bert}", "finetune.model: give family or path (did you mean familie?)"),
    ("model.layers=x", "finetune.model.layers cannot be 'x': input should be a valid integer"),
    ("model.layers=-1", "finetune.model.layers cannot be -1"), ("model.family=brt", "There is no model family 'brt'"),
    ("model={path: somewhere}", "finetune.model: a folder is named as it is"),
    ("model=nowhere", "nowhere does not exist"), ("model=empty", "empty is not a model folder: it has no config.json"),
    ("model=train.jsonl", "train.jsonl is a file, not a model folder"),
])  # fmt: skip
def test_a_setting_of_the_wrong_kind_is_named(change, reason, tmp_path):
    (tmp_path / "empty").mkdir()
    assert reason in refused(tmp_path, "classify", f"finetune.{change}")


@pytest.mark.parametrize(("task", "settings", "reason"), [
    ("classify", {"budget": "99999999999 steps"}, "finetune.budget is 99,999,999,999 steps, which nobody will live to"),
    ("classify", {"budget": "0.0001s"}, "finetune.budget is too short: a step takes"),
    ("classify", {"model": {"family": "bert", "layerz": 1}}, "bert has no setting 'layerz' (did you mean layers?)"),
    ("classify", {"model": {"family": "bert", **SHAPE, "heads": 3}}, "bert: width 32 is not a multiple of 3 heads"),
    ("classify", {"model": {"family": "bert", **SHAPE, "positions": 20}}, "but the model reads at most 20 tokens"),
    ("classify", {"model": {"family": "bert", **SHAPE, "vocabulary": 10}}, "the model 10: they do not belong together"),
    ("classify", {"model": {"family": "t5", **SHAPE}}, "A t5 reads with its encoder and writes with its decoder"),
    ("translate", {"model": {"family": "bert", **SHAPE}}, "A bert is an encoder, which does not write"),
    ("translate", {"tune": "head"}, "this head is the embeddings again, so that nothing is left to learn"),
    ("classify", {"tune": "lora", "model": {"family": "lstm", "width": 32}}, "a lstm has no matrices that take"),
    ("reply", {"max_new_tokens": 1000}, "An answer of up to 1,000 tokens (finetune.max_new_tokens) does not fit"),
    ("translate", {"model": {"family": "transformer", **SHAPE}, "max_new_tokens": 49}, "An answer of up to 49 tokens"),
])  # fmt: skip
def test_what_cannot_be_is_an_error_before_training_and_the_folder_is_free_for_another_try(
    task, settings, reason, tmp_path
):
    assert reason in finetune(tmp_path, task, **settings).sentence
    assert not (tmp_path / "run/checkpoints").exists()
    learnt(tmp_path, task)


def test_a_separator_that_fills_the_context_is_refused(tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of("reply"))), "separator": " and so on" * 20}
    sentence = finetune(tmp_path, "reply", data=data, sequence_length=16).sentence
    assert "even when it is cut, and the model reads 16: finetune.data.separator is too long" in sentence


@pytest.mark.parametrize("settings", [
    {"batch": 1000}, {"accumulation": 100}, {"sequence_length": 8}, {"warmup": 1000}, {"budget": "1 tokens"},
    {"budget": "0.01 epochs"}, {"validate_every": 1000, "checkpoint_every": 1000}, {"clip": 0, "dropout": 0.5},
    {"tune": "lora", "lora_rank": 1}, {"tune": "head"}, {"patience": 1}, {"data": {"train": "train.jsonl", "limit": 3}},
    {"model": {"family": "lstm", "layers": 1, "width": 32}},
], ids=str)  # fmt: skip
def test_unusual_settings_are_no_reason_to_stop(settings, tmp_path):
    write_recipe(tmp_path, "classify")
    learnt(tmp_path, "classify", **settings)
    assert set(weft("predict", tmp_path / "run/model", "good").lines[0]) == {"label", "score"}


@pytest.mark.parametrize("task", ["pair", "tag", "answer", "intent", "similarity", "translate"])
def test_eight_tokens_are_enough_for_every_task(task, tmp_path):
    learnt(tmp_path, task, sequence_length=8)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    assert "run holds other things. Choose a new or empty folder with -o." in finetune(tmp_path, "classify").sentence
    assert "holds other things" in finetune(tmp_path, "classify", "--resume").sentence
    assert [item.name for item in (tmp_path / "run").iterdir()] == ["notes.txt"]
    file = weft("finetune", tmp_path / "recipe.yml", "-o", tmp_path / "train.jsonl")
    assert "train.jsonl is a file; a run needs a folder" in file.sentence


def test_a_model_without_its_tokenizer_cannot_be_taught(tuned, tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).write_bytes((tuned("classify") / "model" / name).read_bytes())
    sentence = finetune(tmp_path, "classify", model=str(tmp_path / "model")).sentence
    assert "has no tokenizer: neither tokenizer.json nor a vocabulary is there" in sentence
    run = finetune(tmp_path, "classify", model=str(tuned("classify"))).sentence
    assert f"it has no config.json (did you mean {tuned('classify') / 'model'}?)" in run


def test_a_recipe_without_the_section_or_the_file_says_so(tmp_path):
    assert "is not a file" in weft("finetune", tmp_path / "none.yml").sentence
    (tmp_path / "recipe.yml").write_text("name: x\n")
    assert "finetune is missing: say what to learn" in weft("finetune", tmp_path / "recipe.yml").sentence
    recipe = write_recipe(tmp_path, "classify")
    assert "tokenizer goes with a fresh model" in weft(
        "finetune", recipe, "tokenizer={kind: bpe}", "finetune.model=somewhere"
    ).sentence  # fmt: skip
