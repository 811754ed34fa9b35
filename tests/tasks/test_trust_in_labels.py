"""Probabilities that agree with accuracy, in every program that opens the model; labels that may be wrong are found."""

import numpy as np
import pytest
import torch
import transformers

import weft
from small_tasks import finetune, report_of, write_rows
from small_tasks import weft as command
from task_models import make, save
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.example import Example
from weft.tasks.judging.label_suspects import label_suspects, out_of_fold
from weft.tasks.score_tables import abstention_table
from weft.tasks.scored_task import answer_inputs

LABELS = ("L0", "L1", "L2")
WORDS = ("red", "blue", "green")


def noisy_rows(count, wrong=0.25, seed=0):
    """A colour tells the label, but some labels are wrong."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = generator.integers(3) if generator.random() < wrong else number % 3
        rows.append({"text": f"a {WORDS[number % 3]} house, number {number}", "label": LABELS[label]})
    return rows


@pytest.mark.parametrize("kind", [Classify, MultiLabel])
def test_the_head_is_divided_by_the_temperature_that_fits(kind):
    task = kind(LABELS)
    built, spec = make(task, "bert")
    network = built.network
    generator = np.random.default_rng(0)
    golds = [LABELS[number] for number in generator.integers(3, size=120)]
    examples = [Example(f"number {i}", gold if kind is Classify else (gold,)) for i, gold in enumerate(golds)]
    inputs = task.inputs(examples, spec)
    before = np.stack(answer_inputs(task, network, examples, inputs, read=task._logit_rows))
    facts = task.calibrate(network, examples, inputs)
    after = np.stack(answer_inputs(task, network, examples, inputs, read=task._logit_rows))
    np.testing.assert_allclose(after * facts["temperature"], before, atol=1e-3)
    assert facts["loss_after"] <= facts["loss_before"] and facts["examples"] == 120
    assert task.calibrate(network, examples, inputs)["temperature"] == pytest.approx(1, abs=1e-3)
    assert task.calibrate(network, examples[:20], inputs[:20]) == {}  # too few to tell


def test_a_run_that_was_too_sure_is_calibrated_and_transformers_agrees(tmp_path):
    data = {
        "train": str(write_rows(tmp_path / "train.jsonl", noisy_rows(90))),
        "validation": str(write_rows(tmp_path / "validation.jsonl", noisy_rows(150, seed=1))),
        "test": str(write_rows(tmp_path / "test.jsonl", noisy_rows(150, seed=2))),
    }
    said = finetune(tmp_path, "classify", data=data, budget="60 steps", learning_rate=3e-3, metric="loss", patience=99)
    assert said.code == 0 and "Probabilities calibrated on 150 texts" in said.err
    report = report_of(tmp_path / "run")
    facts = report["training"]["calibrated"]
    assert facts["loss_after"] <= facts["loss_before"]
    model = weft.load(tmp_path / "run/model")
    texts = [row["text"] for row in noisy_rows(5)]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(model.folder).eval()
    ids = [model.tokenizer.encode(text) for text in texts]
    with torch.no_grad():
        shares = [theirs(input_ids=torch.tensor([one])).logits[0].softmax(-1).numpy() for one in ids]
    for found, share in zip(model.predict(texts, details=True), shares, strict=True):
        assert found["scores"] == pytest.approx(dict(zip(model.task.labels, share, strict=True)), abs=1e-4)


def test_no_example_is_judged_by_a_baseline_that_has_seen_it():
    """Every text has a label of its own making: only one who has seen it knows it."""
    generator = np.random.default_rng(0)
    seen: list[set[str]] = []

    class Watched(Classify):
        def baseline(self, train, examples):
            assert not {one.given for one in train} & {one.given for one in examples}
            seen.append({one.given for one in examples})
            return "", [np.full(3, 1 / 3)] * len(examples)

    texts = [f"text {generator.integers(40)}" for _ in range(100)]
    found = out_of_fold(Watched(LABELS), [Example(text, "L0") for text in texts])
    assert found.shape == (100, 3) and (found > 0).all()
    assert set().union(*seen) == set(texts) and sum(map(len, seen)) == len(set(texts))


def test_wrong_labels_are_found(tmp_path):
    clean, rows = noisy_rows(150, wrong=0), noisy_rows(120, wrong=0)
    data = {"train": str(write_rows(tmp_path / "train.jsonl", clean))}
    assert finetune(tmp_path, "classify", data=data, budget="60 steps", batch=32, learning_rate=1e-2).code == 0
    wrong = {7, 40, 77, 101}
    for number in wrong:
        rows[number]["label"] = LABELS[(number + 1) % 3]
    model, doubtful, test = tmp_path / "run/model", tmp_path / "doubtful.jsonl", tmp_path / "test.jsonl"
    write_rows(doubtful, rows), write_rows(test, noisy_rows(10, wrong=0))
    said = command("evaluate", model, test, "--train", doubtful, "-o", tmp_path / "report")
    assert said.code == 0, said.err
    found = report_of(tmp_path / "report")["label_suspects"]
    assert {one["given"]: (one["label"], one["suggested"]) for one in found} == {
        rows[number]["text"]: (LABELS[(number + 1) % 3], LABELS[number % 3]) for number in wrong
    }
    assert "Training labels that may be wrong" in (tmp_path / "report/report.html").read_text()
    assert label_suspects(weft.load(model), []) == []


def test_few_different_texts_have_no_folds(tmp_path):
    rows = [{"text": "the same text", "label": LABELS[number % 2]} for number in range(60)]
    model, spec = make(Classify(LABELS[:2]), "bert")
    examples = [Example(row["text"], row["label"]) for row in rows]
    folder = save(Classify(LABELS[:2]), model, spec, tmp_path / "model")
    assert label_suspects(weft.load(folder), examples) == []


def test_a_threshold_of_the_recipe_decides_as_it_was_trained():
    task = MultiLabel(LABELS, threshold=0.7, is_threshold_given=True)
    built, spec = make(task, "bert")
    examples = [Example(f"number {i}", (LABELS[i % 3],)) for i in range(120)]
    before = {name: value.clone() for name, value in built.network.state_dict().items()}
    assert task.calibrate(built.network, examples, task.inputs(examples, spec)) == {}
    assert all(torch.equal(value, before[name]) for name, value in built.network.state_dict().items())


def test_the_report_says_what_can_be_answered_with_which_confidence():
    sure = np.repeat([0.99996, 0.6], [60, 40])
    probabilities = np.stack([sure, 1 - sure], 1)
    gold = np.asarray([0] * 60 + [0, 1] * 20)
    [table] = abstention_table(probabilities, gold)
    assert table.rows == [["0.9999", "60.0%", "100.0%"]]  # rounded down, and once
    assert abstention_table(probabilities[40:], gold[40:]) == []  # 20 sure answers tell too little
