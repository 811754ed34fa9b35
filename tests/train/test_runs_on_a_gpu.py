"""Whole runs on the pretend GPU (tests/pretend_gpu.py): training, validation, samples, checkpoints, evaluation."""

import json

import pytest
from small_recipes import ALICE, WORDS, recipe

import pretend_gpu
import weft
from small_tasks import report_of, write_recipe
from weft.recipe.file import read_recipe
from weft.tasks.learning.finetune import finetune
from weft.train.pretrain import pretrain
from weft.train.processes import Processes


@pytest.fixture
def gpu():
    with pretend_gpu.pretend_gpu(is_like_cuda=True) as device:
        yield device


@pytest.mark.parametrize(
    ("family", "objective", "more"),
    [
        ("gpt2", "causal", {"optimizer": "muon"}),
        ("bert", "masked+next-sentence", {}),
        ("lstm", "causal", {}),
    ],
)
def test_pretraining_ends_with_a_model_like_that_of_a_cpu(family, objective, more, gpu, tmp_path):
    (tmp_path / "book.txt").write_text(ALICE.read_text()[:20_000])
    tokenizer = WORDS if family == "bert" else {"kind": "char"}
    model = {"family": family, "layers": 1, "width": 32} | ({} if family == "lstm" else {"heads": 2})
    asked = recipe(
        tmp_path,
        tokenizer=tokenizer,
        model=model,
        pretrain={"objective": objective, "precision": "float32", "budget": "3 steps", **more},
    )
    found = [
        pretrain(asked, tmp_path, tmp_path / name, processes=Processes(device=device))
        for name, device in (("cpu", "cpu"), ("gpu", str(gpu)))
    ]
    assert found[1]["validation"] == pytest.approx(found[0]["validation"], rel=0.02)
    log = (tmp_path / "gpu" / "train.log").read_text()
    assert family == "lstm" or f"on {gpu}: " in log
    assert weft.load(found[1]["model"], device="cpu").parameters_count == found[1]["parameters"]


@pytest.mark.parametrize("task", ["tag", "translate"])
def test_finetuning_trains_evaluates_and_saves(task, gpu, tmp_path):
    read = read_recipe(
        write_recipe(tmp_path, task, max_new_tokens=8)
        if task == "translate"
        else write_recipe(tmp_path, task, crf=True)
    )
    results = finetune(read, tmp_path, tmp_path / "run", processes=Processes(device=str(gpu)))
    assert json.loads(json.dumps(report_of(tmp_path / "run")))["task"] == task
    assert weft.load(results["model"], device="cpu").task.name == task
