"""`weft quantize` from end to end, on small models."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import weft
from small_tasks import learnt, rows_of, write_rows
from small_tasks import weft as run
from task_models import ALICE, tokenizer_of
from weft.compress.quantize.calibration import read_quantization_data
from weft.compress.quantize.divergence import Reference
from weft.compress.quantize.run import QuantizeSettings, matrix_names, quantize_loaded, round_matrix
from weft.compress.quantize.sensitivity import quantized_copy
from weft.model.quantized import quantized_modules

SHAPE = {"layers": 2, "width": 32, "heads": 4}


def language_model(folder: Path, family: str = "llama") -> Path:
    """Sharp random predictions, so that rounding can be seen in them."""
    shape = {key: value for key, value in SHAPE.items() if family != "lstm" or key != "heads"}
    model = weft.create(family, tokenizer=tokenizer_of(family), **shape)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 1.5 * parameter.shape[-1] ** -0.5)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return language_model(tmp_path_factory.mktemp("llama") / "model")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    """A run whose recipe names its training data."""
    folder = tmp_path_factory.mktemp("classify")
    learnt(folder, "classify", budget="20 steps")
    return folder / "run/model"


@pytest.mark.parametrize(
    ("family", "bits"),
    [("lstm", 8), *((family, bits) for family in ("bert", "modernbert", "gpt2", "qwen3", "t5") for bits in (8, 4))],
)
def test_a_language_model_predicts_nearly_the_same(family, bits, tmp_path):
    source = language_model(tmp_path / "model", family)
    facts = weft.quantize(source, tmp_path / "small", bits=bits, data=ALICE, allowed_loss=50)
    before, after = weft.load(source), weft.load(tmp_path / "small")
    assert quantized_modules(after.network)
    assert facts["bytes"]["after"] < facts["bytes"]["before"]
    ids = [[5, 9, 30, 17, 44, 8], [7, 7, 61]]
    targets = [[0, 5, 9], [0, 8]] if family == "t5" else None
    ours, theirs = (np.concatenate(model.logits(ids, targets)).ravel() for model in (before, after))
    assert np.corrcoef(ours, theirs)[0, 1] > (0.99 if bits == 8 else 0.85)
    assert facts["divergence"] < (0.02 if bits == 8 else 0.5)


def test_eight_bits_are_nearer_than_four_and_gptq_nearer_than_nearest(llama, tmp_path):
    model, four = weft.load(llama), QuantizeSettings(4, allowed=50)
    data = read_quantization_data(model, [ALICE], tmp_path)
    reference = Reference(model.network, data.held)
    assert reference.divergence(model.network) == pytest.approx(0, abs=1e-6)
    eight = quantize_loaded(model, [ALICE], QuantizeSettings(8, allowed=50)).divergence
    gptq = quantize_loaded(model, [ALICE], four).divergence
    names = matrix_names(model.network)
    nearest = {name: round_matrix(model.network, name, None, four) for name in names}
    assert 0 < eight < 0.2 * gptq
    assert gptq < 0.9 * reference.divergence(quantized_copy(model.network, nearest))


def test_a_task_is_calibrated_on_the_data_of_its_run(classifier, tmp_path):
    said = run("quantize", classifier, "-o", tmp_path / "int8", "--json")
    facts = json.loads(said.out)
    assert facts["data"].endswith("of train.jsonl") and "Calibrating on" in said.err
    assert facts["verdict"].count("MB") == 2
    rows = [row["text"] for row in rows_of("classify")]
    labels = [[answer["label"] for answer in weft.load(one).predict(rows)] for one in (classifier, tmp_path / "int8")]
    assert labels[0] == labels[1]
    kept = json.loads((tmp_path / "int8/weft.json").read_text())
    step = kept["compressed"][-1]
    assert (step["method"], step["bits"], step["from"]) == ("quantize", 8, str(classifier))
    assert step["matrices"]["encoder.blocks.0.attention.qkv"]["bits"] == 8
    assert kept["task"]["name"] == "classify"


@pytest.mark.parametrize("task", ["tag", "similarity", "several", "answer", "translate"])
def test_every_kind_of_task_is_quantized(task, tmp_path):
    learnt(tmp_path, task)
    model = tmp_path / "run/model"
    facts = weft.quantize(model, tmp_path / "int8", data=tmp_path / "train.jsonl")
    assert facts["divergence"] < 0.05
    assert ("of their variance" if task == "similarity" else "nats") in facts["verdict"]
    assert weft.load(tmp_path / "int8").task.name == weft.load(model).task.name


def test_an_encoder_without_a_head_keeps_its_vectors_and_its_pooling(minilm, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(ALICE.read_text().split(". ")[:60]))
    facts = weft.quantize(minilm, tmp_path / "int8", data=lines)
    before, after = weft.load(minilm), weft.load(tmp_path / "int8")
    texts = ["The cat sat on the mat.", "A dog barks.", "Stocks fell sharply on Monday."]
    cosines = (before.embed(texts) * after.embed(texts)).sum(1)
    assert cosines.mean() > 0.995
    assert after.pooling == before.pooling and (tmp_path / "int8/modules.json").is_file()
    assert facts["bytes"]["after"] < 0.3 * facts["bytes"]["before"]
    assert "(1 − cosine)" in facts["verdict"]


def test_without_data_eight_bits_work_and_say_so_and_four_ask_for_it(llama, tmp_path):
    said = run("quantize", llama, "-o", tmp_path / "a")
    assert said.code == 0 and "No data" in said.err and "--data" in said.err
    assert "need data" in run("quantize", llama, "-o", tmp_path / "b", "--bits", 4).sentence
    assert "Tuning learns from data" in run("quantize", llama, "-o", tmp_path / "b", "--tune", "2 steps").sentence
    assert not (tmp_path / "b").exists()


def test_the_worst_matrices_stay_in_fp32_to_meet_the_bound(llama, tmp_path):
    free = weft.quantize(llama, tmp_path / "free", data=ALICE, bits=4, allowed_loss=50)
    bound = free["divergence"] / 3
    facts = weft.quantize(llama, tmp_path / "bound", data=ALICE, bits=4, allowed_loss=bound)
    assert not free["kept_in_fp32"] and facts["kept_in_fp32"]
    assert facts["divergence"] <= bound
    kept = set(facts["kept_in_fp32"])
    step = json.loads((tmp_path / "bound/weft.json").read_text())["compressed"][-1]["matrices"]
    assert {name for name, found in step.items() if found["bits"] == 32} == kept
    worst = max(step, key=lambda name: step[name]["divergence_alone"])
    assert worst in kept
    after = weft.load(tmp_path / "bound").network
    assert not kept & quantized_modules(after).keys()


def test_tuning_brings_predictions_nearer_and_repeats_exactly(llama, tmp_path):
    options = {"bits": 4, "data": ALICE, "allowed_loss": 50}
    before = weft.quantize(llama, tmp_path / "plain", **options)
    tuned = [weft.quantize(llama, tmp_path / name, tune="60 steps", seed=1, **options) for name in "ab"]
    assert tuned[0]["divergence"] < 0.9 * before["divergence"]
    assert tuned[0]["tuned_steps"] == 60
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_a_model_without_a_head_is_not_tuned(tmp_path):
    weft.create("bert", head="none", tokenizer=tokenizer_of("bert"), **SHAPE).save(tmp_path / "model")
    said = run("quantize", tmp_path / "model", "-o", tmp_path / "o", "--data", ALICE, "--tune", "2 steps")
    assert "makes no predictions" in said.sentence


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--bits", 5), "--bits is 8 or 4"),
        (("--bits", 4, "--group", 7), "--group is an even number"),
        (("--group", 64), "goes with --bits 4"),
        (("--unpacked",), "goes with --bits 4"),
        (("--allowed-loss", -1), "--allowed-loss is a number above 0"),
        (("--tune", "soon"), "--tune cannot be 'soon'"),
        (("--tune", "1 steps", "--seed", -1), "--seed is a whole number from 0"),
        (("--data", "nowhere.txt"), "nowhere.txt does not exist"),
        (("--test", "nowhere.tsv"), "nowhere.tsv does not exist"),
    ],
)
def test_a_mistake_is_a_sentence_and_writes_nothing(arguments, says, llama, tmp_path):
    assert says in run("quantize", llama, "-o", tmp_path / "o", *arguments).sentence
    assert not (tmp_path / "o").exists()


def test_places_that_would_harm_the_model_are_refused(llama, tmp_path):
    assert "is the model " in run("quantize", llama, "-o", llama).sentence
    assert "is inside the model" in run("quantize", llama, "-o", llama / "int8").sentence
    (llama.parent / "config.json").write_text("{}")
    assert "contains the model" in run("quantize", llama, "-o", llama.parent).sentence
    (tmp_path / "mine.txt").write_text("notes")
    assert "holds other things" in run("quantize", llama, "-o", tmp_path).sentence
    assert "not a model folder" in run("quantize", tmp_path, "-o", tmp_path / "o").sentence


def test_data_of_another_task_is_refused(classifier, tmp_path):
    pairs = write_rows(tmp_path / "tags.jsonl", rows_of("tag"))
    said = run("quantize", classifier, "-o", tmp_path / "o", "--data", pairs)
    assert said.code == 2 and said.sentence
    few = write_rows(tmp_path / "few.jsonl", rows_of("classify", 3))
    assert "needs at least 8" in run("quantize", classifier, "-o", tmp_path / "o", "--data", few).sentence


@pytest.fixture(scope="module")
def int8(llama, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("int8") / "model"
    weft.quantize(llama, folder)
    return folder


def test_a_quantized_model_is_not_quantized_exported_or_trained_again(int8, llama, tmp_path):
    again = run("quantize", int8, "-o", tmp_path / "o").sentence
    export = run("export", int8, "--to", "onnx", "-o", tmp_path / "o").sentence
    recipe = tmp_path / "recipe.yml"
    recipe.write_text(
        f"name: x\nmodel: {{path: {int8}}}\ncorpus: {{sources: [{{path: {ALICE}}}]}}\n"
        "pretrain: {objective: causal, budget: 2 steps, sequence_length: 16, batch_tokens: 64}\n"
    )
    train = run("pretrain", recipe, "-o", tmp_path / "run").sentence
    for sentence in (again, export, train):
        assert f" is quantized. Use the fp32 model that it was made from: {llama}." in sentence


def test_info_tells_bits_and_bytes(int8, llama):
    facts, before = (json.loads(run("info", folder, "--json").out) for folder in (int8, llama))
    assert facts["quantized"] == {"8 bits": "10 matrices"}
    assert facts["parameters"] == before["parameters"]
    assert facts["memory"]["run"] < 0.35 * before["memory"]["run"]


def test_a_quantized_model_writes_scores_and_saves_itself(int8, tmp_path):
    model = weft.load(int8)
    assert model.generate("Alice was", max_new_tokens=5)
    assert model.score("Alice was beginning to get very tired.").perplexity > 1
    model.save(tmp_path / "copy")
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (int8 / "model.safetensors").read_bytes()
    assert json.loads((tmp_path / "copy/weft.json").read_text())["compressed"][-1]["bits"] == 8


def test_the_end_compares_before_and_after_on_test_data(classifier, tmp_path):
    test = write_rows(tmp_path / "test.jsonl", rows_of("classify", 60)[40:])
    said = run("quantize", classifier, "-o", tmp_path / "int8", "--test", test, "--json")
    assert json.loads(said.out)["card"]["verdict"]


def test_a_kill_leaves_the_source_untouched_and_the_target_whole_or_absent(llama, tmp_path):
    source = {file.name: file.read_bytes() for file in llama.iterdir()}
    command = [sys.executable, "-m", "weft", "quantize", str(llama), "-o", str(tmp_path / "o"), "--data", str(ALICE)]
    for wait in (0.5, 2.0, 4.0):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert {file.name: file.read_bytes() for file in llama.iterdir()} == source
        if (tmp_path / "o").exists():
            assert quantized_modules(weft.load(tmp_path / "o").network)
