"""What several processes agree on: samples, totals, gradients, who writes, when to stop."""

import json
import shutil
from dataclasses import replace
from itertools import chain

import pytest
import torch
import yaml
from torch import nn

import weft
from thread_processes import run_as_processes
from weft.errors import RecipeError
from weft.model.packed import pack
from weft.objectives.objective import Batch, HeadObjective
from weft.recipe.file import read_recipe
from weft.recipe.recipe import Recipe
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import piece_seed
from weft.train.loop import Hooks, train
from weft.train.optimizers import OptimizerSpec
from weft.train.plan.trial import step_times
from weft.train.pretrain import pretrain
from weft.train.processes import Processes, default_pieces
from weft.train.run_folder import claim
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.summed_gradients import SummedGradients
from weft.train.training_log import read_metrics
from weft.train.validation import validate

SHAPE = {"vocabulary": 50, "layers": 1, "width": 16, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


class Counting(HeadObjective):
    """Sample i counts upwards from i; samples have unequal lengths."""

    def __len__(self):
        return 40

    def batch(self, samples, epochs, seed):
        rows = [[(sample + place) % 50 for place in range(4 + sample % 5)] for sample in samples]
        targets = torch.tensor([(token + 1) % 50 for row in rows for token in row])
        return Batch(pack(rows), targets, counts={"causal": len(targets)})


def spec(steps=4, **changes):
    optimizer = OptimizerSpec(learning_rate=1e-2)
    return TrainSpec(
        steps, 12, Schedule(steps, "linear"), optimizer, **{"validate_every": 2, "log_every": 1, **changes}
    )


def run(folder, processes=None, settings=None, **options):
    network = weft.create("gpt2", **SHAPE, embedding_dropout=0.0, seed=1).network
    objective = Counting()
    held_out = [objective.batch([sample], [0], 0) for sample in (1, 2, 3)]  # one process has more than the other
    order = Order((len(objective),), (1.0,), 5)
    state = train(
        network, [objective], order, settings or spec(), folder, validation=held_out, processes=processes, **options
    )
    return network, state


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_the_slices_of_all_processes_are_the_whole_batch(world):
    def samples(processes):
        settings = spec(accumulation=2, pieces=6)
        pieces_of = StepBatches([Counting()], Order((40,), (1.0,), 5), settings, processes)
        batches = [batch.packed for piece in pieces_of(3) for batch in piece.batches]
        return [row[0].item() for batch in batches for row in batch.split(batch.tokens)]

    parts = [samples(Processes(rank, world, "cpu")) for rank in range(world)]
    assert sorted(chain(*parts)) == sorted(samples(Processes(device="cpu")))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2  # samples; a piece has two


@pytest.mark.parametrize(("world", "pieces"), [(2, 2), (2, 8), (3, 8), (4, 4), (5, 6)])
def test_processes_train_as_one_to_the_bit_and_only_the_first_writes(world, pieces, tmp_path):
    settings = spec(pieces=pieces)
    alone, expected = run(tmp_path / "alone", settings=settings)
    found = run_as_processes(world, lambda processes: run(tmp_path / str(processes.rank), processes, settings))
    assert not (tmp_path / "1").exists()
    for network, state in found:
        assert state == expected
        assert all(map(torch.equal, network.parameters(), alone.parameters()))
    logs = [read_metrics(tmp_path / name) for name in ("alone", "0")]
    kept = ("loss", "grad_norm", "tokens", "validation_loss")
    one, several = ([[line.get(key) for key in kept] for line in log] for log in logs)
    assert several == one
    assert (tmp_path / "0/checkpoints/step-000004").is_dir()


@pytest.mark.parametrize("accumulation", [1, 2])
def test_processes_that_are_not_exact_train_as_one_but_for_rounding(accumulation, tmp_path):
    settings = spec(accumulation=accumulation)
    alone, expected = run(tmp_path / "alone", settings=settings)

    def fast(processes):
        return run(tmp_path / str(processes.rank), replace(processes, is_exact=False), settings)

    for network, state in run_as_processes(3, fast):
        assert state.tokens == expected.tokens
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(network.get_parameter(name), parameter, atol=1e-5, rtol=1e-4)


def test_a_run_goes_on_in_the_other_mode(tmp_path):
    settings = spec(pieces=4)
    alone, _ = run(tmp_path / "run", settings=settings)
    shutil.rmtree(tmp_path / "run/checkpoints/step-000004")

    def fast(processes):
        others = replace(processes, is_exact=False)
        return run(tmp_path / "run", others, settings, resume=True)

    for network, state in run_as_processes(2, fast):
        assert state.step == 4
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(network.get_parameter(name), parameter, atol=1e-5, rtol=1e-4)


def test_a_weight_that_no_process_used_gets_no_gradient():
    def gradients(processes):
        used, by_one, _ = weights = [nn.Parameter(torch.ones(2)) for _ in range(3)]
        shared = SummedGradients(weights, processes)
        for _ in range(2):  # steps
            for weight in weights:
                weight.grad = None
            shared.begin()
            ((used.sum() + by_one.sum()) if processes.is_first else 2 * used.sum()).backward()
            shared.finish()
        return [None if weight.grad is None else weight.grad.tolist() for weight in weights]

    assert run_as_processes(2, gradients) == [[[3.0, 3.0], [1.0, 1.0], None]] * 2


def test_pieces_hardly_change_the_result(tmp_path):
    whole, _ = run(tmp_path / "whole")
    cut, _ = run(tmp_path / "cut", settings=spec(pieces=4))
    for name, parameter in whole.named_parameters():
        torch.testing.assert_close(cut.get_parameter(name), parameter, atol=1e-5, rtol=1e-4)


def test_all_processes_stop_together_for_the_first_ones_reason(tmp_path):
    def states(processes):
        rule = (lambda facts, state: "enough") if processes.is_first else (lambda facts, state: None)
        return run(tmp_path / str(processes.rank), processes, spec(pieces=2), hooks=Hooks(stop_rules=[rule]))[1]

    assert [(state.step, state.stopped) for state in run_as_processes(2, states)] == [(2, "enough")] * 2


def test_measures_that_differ_in_the_last_digits_are_those_of_the_first(tmp_path):
    """On two kinds of processors. Which checkpoint is best, and so when to save, must be the same in all."""

    def states(processes):
        losses = iter([1.0, 1.0 + 1e-9 * (1 - 2 * processes.rank), 1.0])
        hooks = Hooks(measure=lambda: {"validation_loss": next(losses)})
        return run(tmp_path / str(processes.rank), processes, spec(6, pieces=2), hooks=hooks)[1]

    first, second = run_as_processes(2, states)
    assert first == second
    assert first.best == 2


def test_validation_in_parts_is_validation_of_everything():
    network = weft.create("gpt2", **SHAPE, embedding_dropout=0.0, seed=1).network
    batches = [Counting().batch([sample], [0], 0) for sample in range(5)]
    whole = validate(network, batches)
    for found in run_as_processes(2, lambda processes: validate(network, batches, processes=processes)):
        assert found == pytest.approx(whole)


def test_more_pieces_than_samples_and_more_processes_than_pieces_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="12 samples, fewer than its 13 pieces"):
        run(tmp_path, settings=spec(pieces=13))
    with pytest.raises(RecipeError, match="4 pieces, fewer than the 5 processes"):
        run(tmp_path, Processes(0, 5, "cpu"), spec(pieces=4))


@pytest.mark.parametrize(("world", "samples", "pieces"), [(1, 16, None), (2, 16, 8), (2, 5, 5), (9, 16, 9), (4, 3, 4)])
def test_a_step_of_few_samples_has_fewer_pieces(world, samples, pieces):
    assert default_pieces(world, samples) == pieces


def test_a_step_is_timed_even_if_it_has_more_pieces_than_samples():
    network, objective = weft.create("gpt2", **SHAPE, embedding_dropout=0.0, seed=1).network, Counting()
    order = Order((len(objective),), (1.0,), 5)
    assert step_times(network, [objective], order, spec(pieces=13), seconds=0.0, world=1) == []


def test_dropout_differs_between_pieces():
    seeds = [piece_seed(3, step, piece) for piece in range(8) for step in range(20)]
    assert len(set(seeds)) == len(seeds)


def test_what_processes_agree_on():
    def agreed(processes):
        numbers = {"all": 1, f"only {processes.rank}": processes.rank + 1}
        return processes.add_up(numbers), processes.any(processes.rank == 1), processes.broadcast(processes.rank)

    assert run_as_processes(2, agreed) == [({"all": 2, "only 0": 1, "only 1": 2}, True, 0)] * 2


def test_the_first_goes_ahead(tmp_path):
    def work(processes):
        with processes.first_goes_ahead():
            if processes.is_first:
                (tmp_path / "made").write_text("by the first")
            return (tmp_path / "made").read_text()

    assert run_as_processes(2, work) == ["by the first"] * 2


def test_one_of_the_processes_claims_the_folder(tmp_path):
    def work(processes):
        with claim(tmp_path / "run", Recipe(), tmp_path, resume=False, processes=processes):
            return json.loads((tmp_path / "run/weft.json").read_text())["kind"]

    assert run_as_processes(2, work) == ["run", "run"]


def test_two_processes_pretrain_one_model_in_one_folder(tmp_path):
    (tmp_path / "book.txt").write_text("The quick brown fox jumps over the lazy dog, again and again. " * 300)
    settings = {"budget": "4 steps", "sequence_length": 32, "batch_tokens": 256, "precision": "float32", "log_every": 1}
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 2},
        "pretrain": settings,
    }
    (tmp_path / "recipe.yml").write_text(yaml.safe_dump(tree))
    recipe = read_recipe(tmp_path / "recipe.yml")
    alone = pretrain(recipe, tmp_path, tmp_path / "alone")
    both = run_as_processes(2, lambda processes: pretrain(recipe, tmp_path, tmp_path / "both", processes=processes))
    assert both[0] == both[1]
    assert both[0]["tokens"] == alone["tokens"]
    assert both[0]["validation"]["validation_loss"] == pytest.approx(alone["validation"]["validation_loss"], rel=1e-4)
    assert len(read_metrics(tmp_path / "both")) == 4
    assert weft.load(tmp_path / "both/model").parameters_count == alone["parameters"]
