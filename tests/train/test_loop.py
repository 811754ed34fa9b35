"""Exact continuation, accumulation, early stopping, interruption, divergence: on real text, with three objectives."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import weft
from weft import compiled
from weft.model.kernel_report import missing_kernels
from weft.objectives.causal import Causal
from weft.objectives.masked_pairs import MaskedPairs
from weft.objectives.masking import Vocabulary
from weft.objectives.sentence_pairs import SentencePairs
from weft.objectives.span_corruption import SpanCorruption
from weft.tokenizer.train import train_tokenizer
from weft.tokens.order import Order
from weft.tokens.shards import build_shards
from weft.train.engine import Diverged, Engine
from weft.train.loop import train
from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.training_log import TrainingLog

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
SHAPE = {"vocabulary": 400, "layers": 2, "width": 32, "heads": 2, "dropout": 0.1}
FAMILY = {"gpt2": ("bpe", "eos"), "bert": ("wordpiece", "sep"), "t5": ("unigram", "eos")}
CHAPTERS = [text[:2500] for text in ALICE.read_text().split("CHAPTER ") if len(text) > 500]


def make(family, folder, texts=CHAPTERS[:3]):
    kind, end = FAMILY[family]
    tokenizer = train_tokenizer([ALICE], kind, 400, family=family)
    end = tokenizer.id_of(end)
    shards = build_shards(texts, tokenizer, folder, separator=end, sentences=family == "bert")
    if family == "gpt2":
        return Causal(shards, 32)
    if family == "bert":
        vocabulary = Vocabulary(400, tokenizer.id_of("mask"), frozenset(range(5)))
        return MaskedPairs(SentencePairs(shards), 32, vocabulary, (tokenizer.id_of("cls"), end))
    sentinels = tuple(tokenizer.engine.token_to_id(f"<extra_id_{i}>") for i in range(100))
    return SpanCorruption(shards, 32, sentinels, end=end, start=0)


@pytest.fixture(scope="module", params=FAMILY)
def setting(request, tmp_path_factory):
    return request.param, make(request.param, tmp_path_factory.mktemp(request.param))


def spec(steps=16, **changes):
    made = TrainSpec(
        steps,
        samples=24,  # a few steps to an epoch
        schedule=Schedule(steps, "linear", warmup=3),
        optimizer=OptimizerSpec(learning_rate=1e-3),
        seed=5,
        accumulation=2,
        log_every=1,
        validate_every=5,
        checkpoint_every=7,
    )
    return replace(made, **changes)


def run(setting, folder, settings, **options):
    family, objective = setting
    network = weft.create(family, **SHAPE, head=objective.head, seed=1).network
    order = Order((len(objective),), (1.0,), settings.seed)
    validation = [objective.batch(list(range(8)), [0] * 8, seed=99)]
    state = train(network, [objective], order, settings, folder, validation=validation, **options)
    return network, state


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines]


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_killed_anywhere_and_resumed_ends_with_the_same_bytes(setting, optimizer, tmp_path, monkeypatch):
    settings = spec(optimizer=OptimizerSpec(optimizer))
    unbroken, state = run(setting, tmp_path / "unbroken", settings)
    assert settings.steps * settings.samples > 1.3 * len(setting[1]) or setting[0] == "bert"  # crosses an epoch
    real, killed = Engine.take_step, []

    def step_or_die(engine, batches, number, rate):
        if number in (4, 9, 10, 15) and number not in killed:
            killed.append(number)
            raise Killed
        return real(engine, batches, number, rate)

    monkeypatch.setattr(Engine, "take_step", step_or_die)
    for _ in range(4):
        with pytest.raises(Killed):
            run(setting, tmp_path / "broken", settings, resume=True)
    broken, again = run(setting, tmp_path / "broken", settings, resume=True)
    for name, parameter in unbroken.named_parameters():
        assert parameter.detach().numpy().tobytes() == broken.get_parameter(name).detach().numpy().tobytes(), name
    assert losses(tmp_path / "broken") == losses(tmp_path / "unbroken")
    assert again == state
    assert len(losses(tmp_path / "broken")) == settings.steps


def test_training_lowers_the_loss_and_accumulation_does_not_change_it(setting, tmp_path):
    family, objective = setting
    settings = spec(accumulation=1)
    run(setting, tmp_path / "one", settings)
    lines = losses(tmp_path / "one")
    assert lines[-1]["validation_loss"] < lines[4]["validation_loss"]
    plain = {**SHAPE, "dropout": 0.0}
    if family != "t5":
        plain |= {"attention_dropout": 0.0}
    if family == "gpt2":
        plain |= {"embedding_dropout": 0.0}
    results = []
    for pieces in (1, 3):
        network = weft.create(family, **plain, head=objective.head, seed=1).network
        order = Order((len(objective),), (1.0,), 5)
        train(network, [objective], order, spec(6, accumulation=pieces), tmp_path / f"pieces-{pieces}")
        results.append([line["loss"] for line in losses(tmp_path / f"pieces-{pieces}")])
    assert results[0] == pytest.approx(results[1], abs=2e-3)


def test_the_best_and_the_newest_checkpoints_stay(setting, tmp_path):
    _, state = run(setting, tmp_path, spec())
    steps = {int(item.name[5:]) for item in (tmp_path / "checkpoints").iterdir()}
    assert {state.best, 16} <= steps
    assert len(steps) <= 3


def test_the_best_is_kept_when_it_falls_between_two_checkpoints(tmp_path):
    objective = make("gpt2", tmp_path / "tokens")
    rising = Schedule(12, "wsd", decay=0.5, floor=1000.0)  # it learns for some steps and is then thrown about
    optimizer = OptimizerSpec(learning_rate=1e-3, weight_decay=0.0)
    settings = spec(12, optimizer=optimizer, schedule=rising, validate_every=2, checkpoint_every=7)
    _, state = run(("gpt2", objective), tmp_path / "run", settings)
    assert state.best in (6, 8)
    assert (tmp_path / f"run/checkpoints/step-{state.best:06}").is_dir()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_rate_on_record_is_the_one_asked_for(setting, decay, tmp_path):
    settings = spec(6, optimizer=OptimizerSpec(learning_rate=1e-3, weight_decay=decay))
    run(setting, tmp_path, settings)
    expected = [1e-3 * settings.schedule(step) for step in range(6)]
    assert [line["lr"] for line in losses(tmp_path)] == pytest.approx(expected)


def test_patience_stops_early(tmp_path):
    objective = make("gpt2", tmp_path / "tokens")
    settings = spec(200, optimizer=OptimizerSpec(learning_rate=0.0, weight_decay=0.0), validate_every=2, patience=3)
    _, state = run(("gpt2", objective), tmp_path / "run", settings)
    assert state.step == 8


def test_a_loss_that_is_nan_stops_with_a_reason_and_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    objective = make("gpt2", tmp_path / "tokens")
    network = weft.create("gpt2", **SHAPE, seed=1).network
    order = Order((len(objective),), (1.0,), 5)
    train(network, [objective], order, spec(7), tmp_path / "run")
    with torch.no_grad():
        network.embed.tokens.weight[5:] = float("nan")
    closed = []
    monkeypatch.setattr(TrainingLog, "close", lambda record: closed.append(record))
    with pytest.raises(Diverged, match=r"At step 1 the loss is nan.*This step was not taken.*lower learning rate"):
        train(network, [objective], order, spec(7), tmp_path / "other")
    assert len(closed) == 1
    assert (tmp_path / "run/checkpoints/step-000007").is_dir()


def test_a_thread_trains_to_the_same_bytes_and_says_that_ctrl_c_is_not_handled(tmp_path, capsys):
    setting = "gpt2", make("gpt2", tmp_path / "tokens")
    here, _ = run(setting, tmp_path / "here", spec(3))
    assert "Ctrl-C" not in capsys.readouterr().err
    with ThreadPoolExecutor(1) as pool:
        there, _ = pool.submit(run, setting, tmp_path / "there", spec(3)).result()
    assert "Ctrl-C is not handled here" in capsys.readouterr().err
    assert all(map(torch.equal, here.parameters(), there.parameters()))


def test_two_sources_are_trained_on_together(tmp_path):
    first, second = make("gpt2", tmp_path / "a"), make("gpt2", tmp_path / "b", CHAPTERS[3:5])
    network = weft.create("gpt2", **SHAPE, seed=1).network
    order = Order((len(first), len(second)), (0.7, 0.3), 0)
    state = train(network, [first, second], order, spec(6), tmp_path / "run")
    assert state.step == 6


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_loop as t
t.run(("gpt2", t.make("gpt2", Path(sys.argv[1]) / "tokens")), Path(sys.argv[1]) / "run", t.spec(100000), resume=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_first_and_say_how_to_resume(number, tmp_path):
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step"):
            break
    os.kill(process.pid, number)
    said = process.stderr.read()
    process.wait()
    assert "--resume, or weft run again, continues" in said
    step = int(re.search(r"Stopped at step (\d+)", said)[1])
    assert (tmp_path / f"run/checkpoints/step-{step:06}").is_dir()


def test_the_log_says_which_kernels_serve_and_why_one_does_not(tmp_path, monkeypatch):
    setting = "gpt2", make("gpt2", tmp_path / "data")
    missing_kernels()  # so that what is set below is not forgotten with the test
    monkeypatch.setitem(compiled._reasons, "layers", None)
    monkeypatch.setitem(compiled._reasons, "attention", "there is no C compiler (cc)")
    run(setting, tmp_path / "run", spec(1))
    log = (tmp_path / "run/train.log").read_text()
    assert "kernel layers: in use\n" in log
    assert "kernel attention: not used: there is no C compiler (cc)\n" in log
