"""Long texts in several windows: all is read, the label's score is the mean over them, and it is learned from them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from small_tasks import finetune, report_of, write_rows
from task_models import asked, make, save
from weft.model.packed import pack
from weft.tasks.batches import pack_inputs
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.encode import encode_windows, windows_for
from weft.tasks.example import Example

LABELS = ("bad", "good", "odd")
TEXTS = ["Down, down, down.", "Alice was beginning to get very tired of sitting by her sister on the bank. " * 9, ""]
FAMILIES = ("bert", "roberta", "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("most", [1, 3, 64])
def test_windows_are_the_text_in_order(family, most):
    _, spec = make(Classify(LABELS), family)
    for text, one in zip(TEXTS, encode_windows(TEXTS, spec, most), strict=True):
        own = spec.tokenizer.engine.encode(text, add_special_tokens=False).ids
        ends = spec.tokenizer.engine.encode("", add_special_tokens=True).ids
        windows = np.split(one.ids, np.cumsum(one.parts)[:-1]) if one.parts else [one.ids]
        assert 1 <= len(windows) <= most and all(len(window) <= spec.most_tokens for window in windows)
        inside = [window.tolist()[len(ends) // 2 : len(window) - len(ends) // 2] for window in windows]
        read = [token for window in inside for token in window]
        assert read == own[: len(read)] and one.was_cut == (len(read) < len(own))
        if one.was_cut:  # as much is read as there is room for
            assert len(windows) == most and all(len(window) == spec.most_tokens for window in windows)


@pytest.mark.parametrize("kind", [Classify, MultiLabel])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_score_is_the_mean_over_the_windows(kind, family):
    task = kind(LABELS, windows=4)
    built, spec = make(task, family)
    network, examples = built.network, asked(TEXTS[:2])
    inputs = task.inputs(examples, spec)
    assert not inputs[0].parts and len(inputs[1].parts) == 4
    packed = pack_inputs(inputs)
    found = task.logits(network, network(packed), packed, inputs)
    for one, mine in zip(inputs, found, strict=True):
        rows = np.split(one.ids, np.cumsum(one.parts)[:-1]) if one.parts else [one.ids]
        alone = [network.head("sequence")(network(pack([row])), pack([row]))[0] for row in rows]
        torch.testing.assert_close(mine, torch.stack(alone).mean(0), atol=1e-5, rtol=1e-5)


def test_the_loss_is_that_of_the_mean_and_reaches_every_window():
    task = Classify(LABELS, windows=4)
    built, spec = make(task, "bert")
    network = built.network
    examples = [Example(text, label) for text, label in zip(TEXTS, LABELS, strict=True)]
    inputs = task.inputs(examples, spec)
    packed = pack_inputs(inputs)
    hidden = network(packed)
    hidden.retain_grad()
    answers = task.batch(inputs, packed).answers["classify"]
    loss = answers.loss(network, hidden, packed, 0.0)
    logits = task.logits(network, hidden, packed, inputs)
    torch.testing.assert_close(loss, F.cross_entropy(logits, torch.arange(3), reduction="sum"))
    assert int(answers.correct(network, hidden, packed)) == int((logits.argmax(-1) == torch.arange(3)).sum())
    loss.backward()
    first = packed.starts[:-1].long()  # BERT reads the first token of a sequence
    assert len(first) == 6 and (hidden.grad[first].abs().sum(-1) > 0).all()


def test_as_many_windows_as_hold_nearly_all_texts():
    _, spec = make(Classify(LABELS), "bert")
    short, long = ["a b c"] * 99, "down " * 100
    assert windows_for(short, spec) == windows_for([*short, long], spec) == windows_for([], spec) == 1
    tokens = len(spec.tokenizer.engine.encode(long, add_special_tokens=False))
    assert windows_for([*short, *[long] * 20], spec) == -(-tokens // (spec.most_tokens - 2))
    assert windows_for(["down " * 10_000] * 20, spec) == 1024 // spec.most_tokens  # memory


def rows(count):
    """Only the last word tells the label."""
    generator, words = np.random.default_rng(0), "one two three four five six seven eight nine ten".split()
    return [
        {"text": " ".join([*generator.choice(words, 40), ("blue", "red")[number % 2]]), "label": f"L{number % 2}"}
        for number in range(count)
    ]


def test_a_label_at_the_end_of_long_texts_is_learned(tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows(300)))}
    settings = {"data": data, "sequence_length": 16, "budget": "100 steps", "batch": 32, "learning_rate": 1e-2}
    assert finetune(tmp_path / "whole", "classify", **settings).code == 0
    model = weft.load(tmp_path / "whole/run/model")
    assert model.task.windows > 1
    assert report_of(tmp_path / "whole/run")["figures"]["accuracy"] > 0.95
    texts = [row["text"] for row in rows(4)]
    assert [found["label"] for found in model.predict(texts)] == ["L0", "L1", "L0", "L1"]
    said = finetune(tmp_path / "cut", "classify", windows=1, **settings)
    assert said.code == 0 and weft.load(tmp_path / "cut/run/model").task.windows == 1
    assert report_of(tmp_path / "cut/run")["figures"]["accuracy"] < 0.8


def test_windows_are_kept_with_the_model(tmp_path):
    task = MultiLabel(LABELS, windows=3)
    built, spec = make(task, "bert")
    model = weft.load(save(task, built, spec, tmp_path / "model"))
    assert model.task.windows == 3
    for text in TEXTS[:2]:
        [together] = model.predict([TEXTS[1], text], details=True)[1:]
        assert together["scores"] == pytest.approx(model.predict(text, details=True)["scores"], abs=1e-5)


def test_pairs_have_no_windows(tmp_path):
    assert "finetune.windows" in finetune(tmp_path, "pair", windows=2).sentence


def test_a_student_learns_from_a_teacher_that_reads_some_texts_in_windows(tmp_path):
    train = [{**row, "text": row["text"][-20:]} if number < 12 else row for number, row in enumerate(rows(60))]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", train))}
    shape = {"family": "bert", "layers": 2, "width": 32, "heads": 2}
    settings = {"sequence_length": 16, "windows": 3, "budget": "5 steps", "model": shape}
    assert finetune(tmp_path / "teacher", "classify", data=data, **settings).code == 0
    section = {"teacher": str(tmp_path / "teacher/run/model"), "student": {"layers": 1}, "data": data}
    section |= {"budget": "4 epochs", "augment": False, "yardsticks": False}
    weft.distil({"name": "student", "distil": section}, output=tmp_path / "student")
    assert weft.load(tmp_path / "student/model").task.windows == 3
