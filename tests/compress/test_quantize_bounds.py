"""What quantization may not do: end further away than allowed without saying so, or call a broken model exact."""

import copy
import math
from pathlib import Path

import pytest
import torch

import weft
from small_tasks import learnt, rows_of, write_rows
from small_tasks import weft as run
from task_models import ALICE, tokenizer_of
from weft.compress.quantize import divergence
from weft.compress.quantize import run as quantization
from weft.compress.quantize.calibration import read_quantization_data
from weft.compress.quantize.divergence import Reference
from weft.compress.quantize.tuning import SelfDistillation
from weft.errors import WeftError
from weft.objectives.objective import Batch

SHAPE = {"layers": 2, "width": 32, "heads": 4}


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    """Sharp random predictions, so that rounding can be seen in them."""
    folder = tmp_path_factory.mktemp("llama") / "model"
    model = weft.create("llama", tokenizer=tokenizer_of("llama"), **SHAPE)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 1.5 * parameter.shape[-1] ** -0.5)
    model.save(folder)
    return folder


def sequences(batches: list[Batch]) -> set[tuple[int, ...]]:
    return {tuple(one.tolist()) for batch in batches for one in batch.packed.split(batch.packed.tokens)}


def test_tuning_that_moves_predictions_away_is_not_taken(llama, tmp_path, monkeypatch):
    weft.quantize(llama, tmp_path / "plain", data=ALICE)
    tune = quantization.tune

    def ruin(*given, **more):
        network, rounded, steps = tune(*given, **more)
        with torch.no_grad():
            network.get_parameter("embed.tokens.weight").mul_(3)
        return network, {name: weight for name, weight in rounded.items() if name != "embed.tokens"}, steps

    monkeypatch.setattr(quantization, "tune", ruin)
    said = run("quantize", llama, "-o", tmp_path / "tuned", "--data", ALICE, "--tune", "1 steps")
    assert said.code == 0 and "Tuning did not help" in said.err
    names = [tmp_path / one / "model.safetensors" for one in ("plain", "tuned")]
    assert names[0].read_bytes() == names[1].read_bytes()


def test_the_bound_holds_though_tuned_weights_stay_in_fp32(llama, tmp_path):
    """With 4 bits tuning begins at rounded weights, so its fp32 weights miss a narrow bound."""
    facts = weft.quantize(llama, tmp_path / "int4", bits=4, data=ALICE, tune="3 steps", allowed_loss=1e-6)
    assert facts["divergence"] <= 1e-6 and facts["kept_in_fp32"]


def test_a_bound_that_is_missed_is_named(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(quantization, "matrices_to_keep", lambda *given: ([], {}, given[-1]))
    facts = weft.quantize(llama, tmp_path / "int8", data=ALICE, allowed_loss=1e-9)
    assert facts["verdict"].endswith("nats, more than the allowed 1e-09.")


def test_tuning_is_without_dropout(tmp_path):
    model = weft.create("bert", tokenizer=tokenizer_of("bert"), dropout=0.5, **SHAPE)
    data = read_quantization_data(model, [ALICE], tmp_path)
    goal = SelfDistillation(data.objective, copy.deepcopy(model.network).eval())
    batch = goal.batch([0, 1], [0, 0], 0)
    assert goal.loss(model.network.train(), batch, batch.counts).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("task", [None, "classify"])
def test_tuning_does_not_see_what_the_divergence_is_measured_on(task, llama, tmp_path):
    if task is None:
        folder, file = llama, ALICE
    else:
        learnt(tmp_path, task)
        folder, file = tmp_path / "run/model", write_rows(tmp_path / "rows.jsonl", rows_of(task))
    data = read_quantization_data(weft.load(folder), [file], tmp_path)
    numbers = list(range(len(data.objective)))
    trained = sequences([data.objective.batch(numbers, [0] * len(numbers), 0)])
    assert sequences(data.fit) <= trained and sequences(data.held)
    assert not trained & sequences(data.held)


def test_a_nan_in_the_weights_is_named(tmp_path):
    model = weft.create("bert", tokenizer=tokenizer_of("bert"), **SHAPE)
    with torch.no_grad():
        model.network.get_parameter("encoder.blocks.0.attention.qkv.weight")[0, 0] = math.nan
    model.save(tmp_path / "model")
    for command, *more in (("quantize",), ("quantize", "--data", ALICE), ("prune", "layers=1", "--data", ALICE)):
        said = run(command, tmp_path / "model", *more, "-o", tmp_path / "o")
        assert said.code == 1 and " NaN " in said.err and "diverged" in said.err
    assert not (tmp_path / "o").exists()


def test_nan_predictions_are_infinitely_far(llama, tmp_path):
    model = weft.load(llama)
    data = read_quantization_data(model, [ALICE], tmp_path)
    reference, network = Reference(model.network, data.held), copy.deepcopy(model.network)
    with torch.no_grad():
        next(network.parameters())[:] = math.nan
    assert reference.divergence(network) == math.inf
    with pytest.raises(WeftError, match="predictions are NaN"):
        Reference(network, data.held)


def test_a_divergence_is_not_negative(llama, tmp_path, monkeypatch):
    """Sums of nearly equal numbers may be, by rounding."""
    model = weft.load(llama)
    reference = Reference(model.network, read_quantization_data(model, [ALICE], tmp_path).held)
    monkeypatch.setattr(divergence, "distance", lambda *given: torch.tensor(-1e-9))
    assert reference.divergence(model.network) == 0


def test_four_bits_are_refused_where_no_matrix_would_get_them(tmp_path):
    weft.create("lstm", tokenizer=tokenizer_of("lstm"), layers=1, width=32).save(tmp_path / "lstm")
    said = run("quantize", tmp_path / "lstm", "-o", tmp_path / "o", "--bits", 4, "--data", ALICE)
    assert "No matrix of this lstm can have 4 bits" in said.sentence
