"""finetune, evaluate and predict of every task, from the command line: what comes out, and where."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import weft as library
from small_tasks import TASKS, finetune, report_of, rows_of, weft, without_gold, write_recipe, write_rows
from weft.tasks.example import Example
from weft.tasks.judging.evaluation import evaluate_on
from weft.tasks.labelled.data import LabelledSplit, Problems
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import batch_of
from weft.train.validation import validate

pytestmark = pytest.mark.usefixtures("one_thread")

ANSWER = {  # what an answer has
    "classify": {"label", "score"}, "several": {"labels"}, "pair": {"label", "score"}, "similarity": {"score"},
    "embed": {"score"},
    "tag": {"words", "tags", "entities"}, "answer": {"answer", "score", "start", "end"}, "translate": {"text"},
    "summarize": {"text"}, "extract": {"text"}, "reply": {"text"}, "intent": {"intent", "score", "slots", "tags"},
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_a_run_ends_with_a_model_and_a_report_of_how_good_it_is(task, tuned):
    run = tuned(task)
    assert {"model", "recipe.yml", "report.html", "report.json", "metrics.jsonl", "weft.json"} <= {
        item.name for item in run.iterdir()
    }
    report = report_of(run)
    assert report["examples"] == 4 and report["judged_on"] == "train.jsonl (held out)"
    assert report["intervals"] and set(report["intervals"]) <= set(report["figures"])
    assert set(report["baseline"]["figures"]) <= set(report["figures"]) and report["baseline"]["name"]
    assert {"parameters", "training_seconds", "latency_ms_p50", "latency_ms_p95", "examples_per_second"} <= set(
        report["cost"]
    )
    assert sum(part["examples"] for part in report["slices"]) == 4
    assert all({"place", "given", "right", "said"} == set(mistake) for mistake in report["mistakes"])
    page = (run / "report.html").read_text()
    assert "Worst mistakes" in page and report["baseline"]["name"] in page
    assert json.loads((run / "weft.json").read_text())["results"]["figures"] == report["figures"]


@pytest.mark.parametrize("task", TASKS)
def test_predict_answers_texts_and_files_alike(task, tuned, tmp_path):
    rows = [without_gold(row) for row in rows_of(task, 5)]
    model = tuned(task) / "model"
    of_file = weft("predict", model, "--file", write_rows(tmp_path / "rows.jsonl", rows))
    assert of_file.code == 0 and len(of_file.lines) == len(rows)
    assert [line["id"] for line in of_file.lines] == [1, 2, 3, 4, 5]
    lines = [{key: value for key, value in line.items() if key != "id"} for line in of_file.lines]
    assert all(set(line) == ANSWER[task] for line in lines)
    roles = {"pair": ("text", "second"), "similarity": ("text", "second"), "answer": ("question", "context")}
    texts = [row[role] if role != "words" else " ".join(row[role]) for row in rows for role in roles.get(task, row)]
    of_texts = json.loads(weft("predict", model, *texts, "--json").out)["answers"]
    for answer in of_texts:  # in a text, entities have places; in a list of words, numbers of words alone
        for entity in (*answer.get("entities", ()), *answer.get("slots", ())):
            del entity["characters"]
    assert of_texts == lines
    assert library.load(model).predict(rows) == lines


@pytest.mark.parametrize("task", TASKS)
def test_evaluate_says_the_same_as_the_run_did(task, tuned, tmp_path):
    run, data = tuned(task), write_rows(tmp_path / "data.jsonl", rows_of(task))
    said = weft("evaluate", run / "model", data, "--train", data, "-o", tmp_path / "report", "--json")
    found, report = json.loads(said.out), report_of(tmp_path / "report")
    assert set(found["figures"]) == set(report_of(run)["figures"])
    assert found["figures"] == report["figures"] and found["intervals"] == report["intervals"]
    assert found["cost"]["training_seconds"] == report_of(run)["cost"]["training_seconds"]
    assert found["examples"] == 40 and found["baseline"]["name"] == report_of(run)["baseline"]["name"]
    assert Path(found["report"]) == tmp_path / "report/report.html" and Path(found["report"]).is_file()


@pytest.mark.parametrize("task", ["translate", "reply"])
def test_perplexity_is_that_of_all_right_tokens(task, tuned):
    """Whatever is batched together; and its interval holds it."""
    loaded = LoadedModel.load(tuned(task) / "model")
    examples = [Example(row["source"], row["target"]) for row in rows_of(task, 12)]
    inputs = loaded.task.inputs(examples, loaded.input_spec)
    loss = validate(loaded.task_network, [batch_of(loaded.task, [one]) for one in inputs])["validation_loss"]
    found = evaluate_on(loaded, LabelledSplit("", examples, Problems()), None)
    assert found.figures["perplexity"] == pytest.approx(np.exp(loss), rel=1e-5)
    gap = found.judged.intervals["perplexity"]
    assert gap.low <= found.figures["perplexity"] <= gap.high


def test_results_are_on_standard_output_and_all_else_on_standard_error(tmp_path):
    said = finetune(tmp_path, "classify", "--json")
    assert said.code == 0 and json.loads(said.out)["task"] == "classify"
    for word in ("held out", "Plan: classify", "step 3/3"):
        assert word in said.err
    table = weft("evaluate", tmp_path / "run/model", tmp_path / "train.jsonl")
    assert "accuracy" in table.out and "Predicting" in table.err


@pytest.mark.parametrize("task", TASKS)
def test_one_example_is_enough_to_judge_on(task, tuned, tmp_path):
    data = write_rows(tmp_path / "data.jsonl", rows_of(task, 1))
    said = weft("evaluate", tuned(task) / "model", data, "--train", data, "-o", tmp_path, "--json")
    assert said.code == 0, said.err
    text = (tmp_path / "report.json").read_text()
    report = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [part["examples"] for part in report["slices"]] == [1]


def test_the_columns_of_the_recipe_are_known_to_the_model(tmp_path):
    rows = [{"words": row["text"], "verdict": row["label"]} for row in rows_of("classify")]
    data = {"train": str(write_rows(tmp_path / "data.jsonl", rows)), "text": "words", "label": "verdict"}
    assert finetune(tmp_path, "classify", data=data).code == 0
    model = tmp_path / "run/model"
    assert weft("evaluate", model, tmp_path / "data.jsonl").code == 0
    (tmp_path / "data.jsonl").rename(tmp_path / "data.of-tests")
    assert "--format conll" in weft("evaluate", model, tmp_path / "data.of-tests").sentence
    said = weft("evaluate", model, tmp_path / "data.of-tests", "--format", "jsonl", "--json")
    assert json.loads(said.out)["examples"] == len(rows)
    (tmp_path / "data.of-tests").rename(tmp_path / "data.jsonl")
    assert len(weft("predict", model, "--file", tmp_path / "data.jsonl").lines) == len(rows)
    others = [{"review": row["words"], "verdict": row["verdict"]} for row in rows]
    renamed = write_rows(tmp_path / "renamed.jsonl", others)
    assert weft("predict", model, "--file", renamed).sentence.startswith("renamed.jsonl has no column words")
    said = weft("evaluate", model, renamed, "--column", "text=review", "--json")
    assert json.loads(said.out)["examples"] == len(rows)  # the label is still the recipe's
    (tmp_path / "lines.txt").write_text("a good film\n")
    assert len(weft("predict", model, "--file", tmp_path / "lines.txt").lines) == 1


def test_evaluating_leaves_out_what_is_no_example_and_counts_unknown_labels_as_wrong(tuned, tmp_path):
    rows = [*rows_of("classify", 4), {"text": "so so", "label": "neutral"}, {"text": "", "label": "pos"}]
    data = write_rows(tmp_path / "data.jsonl", rows)
    said = weft("evaluate", tuned("classify") / "model", data, "-o", tmp_path, "--json")
    left_out = ["data.jsonl, line 6 has an empty text."]
    assert json.loads(said.out)["left_out"] == left_out
    assert report_of(tmp_path)["left_out"] == {"data.jsonl": left_out}
    assert json.loads(said.out)["examples"] == 5
    assert (
        "data.jsonl, line 5 has the label 'neutral', which is not in the training data."
        in json.loads(said.out)["notes"][0]
    )


def test_long_texts_are_truncated_and_counted(tuned, tmp_path):
    rows = [*rows_of("classify", 3), {"text": "good " * 600, "label": "pos"}]
    data = write_rows(tmp_path / "data.jsonl", rows)
    said = weft("evaluate", tuned("classify") / "model", data, "-o", tmp_path, "--json")
    sentence = "1 of 4 are longer than 48 tokens: truncated or read in windows."
    assert json.loads(said.out)["cut"] == 1 and sentence in said.err
    assert "longer than the model reads" in (tmp_path / "report.html").read_text()
    assert sentence in weft("predict", tuned("classify") / "model", "--file", data).err


@pytest.mark.parametrize(("column", "reason"), [
    ("text", "is not role=column, such as text=sentence"), ("text=", "is not role=column"),
    ("txt=a", "there is no role txt (did you mean text?)"),
    ("score=a", "there is no role score. There are: text, label"),
    ("text=txt", "has no column txt (did you mean text?). Its columns: text, label"),
])  # fmt: skip
def test_columns_that_make_no_sense_are_refused(column, reason, tuned, tmp_path):
    data = write_rows(tmp_path / "data.jsonl", rows_of("classify", 4))
    model = tuned("classify") / "model"
    for command in (["evaluate", model, data], ["predict", model, "--file", data]):
        assert reason in weft(*command, "--column", column).sentence


def test_a_report_does_not_replace_that_of_a_run(tuned, tmp_path):
    run, data = tuned("classify"), write_rows(tmp_path / "data.jsonl", rows_of("classify"))
    assert "is a run, whose own report" in weft("evaluate", run / "model", data, "-o", run).sentence


@pytest.mark.parametrize(
    ("task", "baseline", "package"),
    [("classify", True, "sklearn"), ("translate", False, "sacrebleu"), ("reply", True, "sacrebleu")],
)
def test_a_missing_package_is_an_error_before_training(task, baseline, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    said = finetune(tmp_path, task, baseline=baseline)
    why = f"to evaluate {task}" if package == "sacrebleu" else "for the baseline"
    assert said.sentence.startswith(f"{package} is needed {why}") and "weft[tasks]" in said.sentence
    assert not (tmp_path / "run").exists()


def test_evaluate_refuses_data_that_it_cannot_judge_by(tuned, tmp_path):
    model = tuned("classify") / "model"
    given = write_rows(tmp_path / "given.jsonl", [without_gold(row) for row in rows_of("classify")])
    other = write_rows(tmp_path / "other.jsonl", [{**row, "label": "x" + row["label"]} for row in rows_of("classify")])
    good = write_rows(tmp_path / "good.jsonl", rows_of("classify"))
    (tmp_path / "lines.txt").write_text("a good film\n")
    (tmp_path / "empty.csv").write_text("")
    for arguments, reason in [
        ([given], "looks like the label. Its columns: text. Name the column with finetune.data.label"),
        ([other], "has the label 'xpos', which is not in the training data (20 of this kind). Known labels: neg, pos."),
        ([tmp_path / "lines.txt"], "no column that looks like the label"),
        ([tmp_path / "empty.csv"], "holds no rows"),
        ([tmp_path / "good.jsnl"], "does not exist (did you mean good.jsonl?)"),
        ([good, tmp_path / "lines.txt"], "lines.txt is lines of text, and "),
        ([good, "--train", given], "no column that looks like the label"),
        ([good, "--task", "pair"], "no column that looks like the second"),
        ([good, "--task", "tag"], "cannot do tag: its head fits classify, pair"),
        ([good, "--task", "clasify"], "There is no task 'clasify' (did you mean classify?)"),
        ([good, "--encoding", "utf-9"], "There is no encoding 'utf-9'"),
        ([good, "-o", tmp_path / "lines.txt"], "is a file; the reports need a folder"),
    ]:
        assert reason in weft("evaluate", model, *arguments).sentence


@pytest.fixture(scope="module")
def foreign(tmp_path_factory, tuned):
    """Folders that transformers wrote, with a tokenizer, and nothing of weft's."""
    import transformers as hf

    place = tmp_path_factory.mktemp("foreign")
    words = hf.PreTrainedTokenizerFast(
        tokenizer_file=str(tuned("classify") / "model/tokenizer.json"), cls_token="[CLS]", sep_token="[SEP]",
        unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]",
    )  # fmt: skip
    pieces = hf.PreTrainedTokenizerFast(
        tokenizer_file=str(tuned("reply") / "model/tokenizer.json"), eos_token="<|endoftext|>"
    )
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    bert = {**shape, "vocab_size": len(words), "max_position_embeddings": 64}
    gpt2 = {"vocab_size": len(pieces), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64, "eos_token_id": 0}
    t5 = {"vocab_size": len(pieces), "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    t5 |= {"decoder_start_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    for name, model, tokenizer in [
        ("sequence", hf.BertForSequenceClassification(hf.BertConfig(**bert)), words),
        ("score", hf.BertForSequenceClassification(hf.BertConfig(**bert, num_labels=1)), words),
        ("token", hf.BertForTokenClassification(hf.BertConfig(**bert, id2label={0: "O", 1: "B-PER"})), words),
        ("span", hf.BertForQuestionAnswering(hf.BertConfig(**bert)), words),
        ("masked", hf.BertForMaskedLM(hf.BertConfig(**bert)), words),
        ("bare", hf.BertModel(hf.BertConfig(**bert)), words),
        ("speechless", hf.BertForSequenceClassification(hf.BertConfig(**bert)), None),
        ("albert", hf.AlbertModel(hf.AlbertConfig(**shape, vocab_size=len(words))), words),
        ("causal", hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2)), pieces),
        ("seq2seq", hf.T5ForConditionalGeneration(hf.T5Config(**t5)), pieces),
        ("t5-classes", hf.T5ForSequenceClassification(hf.T5Config(**t5)), pieces),
    ]:
        model.save_pretrained(place / name)
        if tokenizer is not None:
            tokenizer.save_pretrained(place / name)
    return place


def test_a_foreign_classifier_answers_as_transformers_does(foreign):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(foreign / "sequence").eval()
    tokenizer = AutoTokenizer.from_pretrained(foreign / "sequence")
    with torch.no_grad():
        shares = model(**tokenizer("a good film", return_tensors="pt")).logits[0].softmax(-1).numpy()
    (found,) = weft("predict", foreign / "sequence", "a good film", "--details").lines
    assert found["label"] == model.config.id2label[int(shares.argmax())]
    scores = [found["scores"][f"LABEL_{number}"] for number in range(2)]
    np.testing.assert_allclose(scores, shares, atol=1e-5)


@pytest.mark.parametrize(("name", "task", "options"), [
    ("score", "similarity", []), ("span", "answer", []), ("causal", "reply", ["--task", "reply"]),
    ("seq2seq", "translate", ["--task", "translate"]),
])  # fmt: skip
def test_a_foreign_folder_is_evaluated_by_its_head(name, task, options, foreign, tmp_path):
    data = write_rows(tmp_path / "data.jsonl", rows_of(task, 3))
    found = json.loads(weft("evaluate", foreign / name, data, *options, "--json").out)
    assert (found["task"], found["examples"]) == (task, 3)


def test_a_foreign_tagger_is_wrong_where_it_does_not_have_the_tag(foreign, tmp_path):
    rows = [{"words": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}, {"words": ["in", "Rome"], "tags": ["O", "B-LOC"]}]
    data = write_rows(tmp_path / "data.jsonl", rows)
    found = json.loads(weft("evaluate", foreign / "token", data, "--json").out)
    assert found["examples"] == 2 and "'B-LOC', which is not in the training data" in found["notes"][0]


@pytest.mark.parametrize(("name", "options", "reason"), [
    ("masked", [], "has a masked head, which fits no task. Tune it for one with weft finetune"),
    ("masked", ["--task", "translate"], "has a masked head, which fits no task"),
    ("bare", ["--task", "classify"], "cannot do classify: its head fits embed"),
    ("bare", [], "which fits no task. Tune it for one with weft finetune, or name one: --task embed"),
    ("t5-classes", [], "has a sequence head, which fits no task"),
    ("causal", [], "name its task with --task"), ("seq2seq", [], "name its task with --task"),
    ("seq2seq", ["--task", "classify"], "cannot do classify: its head fits translate, summarize, reply"),
    ("speechless", [], "has no tokenizer"), ("albert", [], "'albert' is not supported"),
    ("nowhere", [], "nowhere does not exist"),
])  # fmt: skip
def test_a_folder_that_cannot_answer_says_why(name, options, reason, foreign, tmp_path):
    data = write_rows(tmp_path / "data.jsonl", rows_of("classify", 3))
    assert reason in weft("predict", foreign / name, "good", *options).sentence
    if options or name not in ("masked", "causal", "seq2seq"):  # a language model is evaluated on text without a task
        assert reason in weft("evaluate", foreign / name, data, *options).sentence


def test_a_path_without_a_model_is_refused(tuned, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not a model folder: it has no config.json." in weft("predict", tmp_path, "good").sentence
    assert "file is a file, not a model folder" in weft("predict", tmp_path / "file", "good").sentence
    assert f"(did you mean {tuned('classify') / 'model'}?)" in weft("predict", tuned("classify"), "good").sentence


def test_ctrl_c_saves_and_a_resumed_run_ends_with_the_same_model(tmp_path):
    settings = {"budget": "300 steps", "validate_every": 100, "log_every": 1}
    assert finetune(tmp_path / "unbroken", "classify", **settings).code == 0
    recipe, run = write_recipe(tmp_path / "broken", "classify", **settings), tmp_path / "broken/run"
    command = [sys.executable, "-m", "weft", "finetune", str(recipe), "-o", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (run / "train.log").is_file():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == "" and "of 300. --resume, or weft run again, continues." in err
    assert not (run / "model").exists()
    resumed = weft("finetune", recipe, "-o", run, "--resume")
    assert resumed.code == 0 and "Resuming from step" in resumed.err
    weights = [place / "model/model.safetensors" for place in (run, tmp_path / "unbroken/run")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_finished_run_is_not_run_again(tmp_path):
    assert finetune(tmp_path, "classify").code == 0
    files = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    results = json.loads((tmp_path / "run/weft.json").read_text())["results"]
    again = finetune(tmp_path, "classify", "--resume", "--json")
    assert json.loads(again.out) == results and "is finished already" in again.err
    assert files == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert "holds a run already at step 3: --resume continues it" in finetune(tmp_path, "classify").sentence
    assert "finetune.seed was 0 and is 7" in finetune(tmp_path, "classify", "--resume", seed=7).sentence


def test_a_run_is_not_resumed_with_other_data(tmp_path):
    assert finetune(tmp_path, "classify").code == 0
    write_rows(tmp_path / "train.jsonl", rows_of("classify", 41))
    again = weft("finetune", tmp_path / "recipe.yml", "-o", tmp_path / "run", "--resume")
    assert "was started with other files: those of finetune.data or finetune.model have changed" in again.sentence


def test_several_seeds_are_run_and_the_best_is_kept(tmp_path):
    data = {name: str(write_rows(tmp_path / f"{name}.jsonl", rows_of("classify"))) for name in ("train", "test")}
    said = finetune(tmp_path, "classify", "--json", seeds=2, budget="20 steps", data=data)
    results = json.loads(said.out)
    spread = results["seeds"]
    assert len(spread["scores"]) == 2 and spread["mean"] == np.mean(spread["scores"])
    best = int(np.argmax(spread["scores"]))
    kept, models = tmp_path / "run/model", [tmp_path / f"run/seed-{seed}/model" for seed in range(2)]
    page, on_test = (tmp_path / "run/report.html").read_text(), spread["test"]
    assert on_test["mean"] == np.mean(on_test["scores"])
    assert on_test["deviation"] == pytest.approx(np.std(on_test["scores"], ddof=1))
    assert on_test["scores"][best] == results["figures"]["accuracy"]
    assert f"On validation: accuracy {spread['mean']:.3f} ±" in page
    assert f"on test: accuracy {on_test['mean']:.3f} ±" in page and "<h2>Learning curve: loss</h2>" in page
    seconds = [json.loads((model / "weft.json").read_text())["results"]["training_seconds"] for model in models]
    assert spread["training_seconds"] == pytest.approx(sum(seconds))
    name = "model.safetensors"
    assert [(model / name).read_bytes() == (kept / name).read_bytes() for model in models] == [best == 0, best == 1]
    for model, score in zip(models, on_test["scores"], strict=True):
        assert json.loads(weft("evaluate", model, data["test"], "--json").out)["figures"]["accuracy"] == score
    assert "holds a run already" in finetune(tmp_path, "classify", seeds=2, budget="20 steps", data=data).sentence


@pytest.mark.parametrize("has_test", [True, False])
def test_seeds_of_a_writing_task_are_compared_by_loss_and_scored_by_the_main_metric(tmp_path, has_test):
    file = str(write_rows(tmp_path / "train.jsonl", rows_of("summarize")))
    data = {"train": file} | ({"test": file} if has_test else {})
    results = json.loads(finetune(tmp_path, "summarize", "--json", seeds=2, data=data).out)
    spread = results["seeds"]
    assert spread["figure"] == "loss" and min(spread["scores"]) == -results["score"] > 0
    assert ("test" in spread) == has_test
    if has_test:
        assert spread["test"]["figure"] == "rouge1" and len(spread["test"]["scores"]) == 2
