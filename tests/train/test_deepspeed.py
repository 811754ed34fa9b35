"""DeepSpeed as the engine: the same training as by our own, and checkpoints that both open."""

import os
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import zero_stages
from safetensors.torch import load_file
from torch import nn

import weft
from deepspeed_proof import is_pickle
from weft.errors import InputError, RecipeError
from weft.recipe.file import check_recipe
from weft.train.deepspeed_engine import _twin, load_deepspeed
from weft.train.local import shared_rows
from weft.train.pretrain_goal import check_pretrain
from weft.train.process_group import ProcessLost, lost_processes_noticed
from weft.train.training_log import read_metrics

needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs the extra deepspeed")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Our own run in one process, and those of `zero_stages` in two."""
    folder = tmp_path_factory.mktemp("zero")
    zero_stages.run(folder / "own")
    for stage in range(4):
        shutil.copytree(folder / "own/checkpoints/step-000002", folder / f"continued-{stage}/checkpoints/step-000002")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", zero_stages.__file__, folder]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = str(Path(zero_stages.__file__).parents[1])  # modules that several tests share
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return folder


def weights_of(run: Path):
    files = sorted((run / "checkpoints/step-000004").glob("network*.safetensors"))
    parts = [load_file(file) for file in files]
    return {name: torch.cat([part[name] for part in parts if name in part]) for name in sorted(parts[0])}


def in_one_row(weights):
    return torch.cat([weight.flatten() for weight in weights.values()])


def assert_equal_runs(one: Path, other: Path):
    a, b = in_one_row(weights_of(one)), in_one_row(weights_of(other))
    assert (a - b).norm() < 1e-5 * a.norm()
    for key in ("loss", "validation_loss", "grad_norm"):
        series = [[line[key] for line in read_metrics(run) if key in line] for run in (one, other)]
        assert series[0][-len(series[1]) :] == pytest.approx(series[1], rel=1e-5)


@needs_deepspeed
@pytest.mark.parametrize("stage", range(4))
def test_a_stage_trains_as_our_own_loop_does(stage, runs):
    assert_equal_runs(runs / "own", runs / f"zero-{stage}")
    given, saved = load_file(runs / f"trained-{stage}.safetensors"), weights_of(runs / f"zero-{stage}")
    assert given.keys() == saved.keys()
    assert all(torch.equal(given[name], saved[name]) for name in saved)


@needs_deepspeed
@pytest.mark.parametrize("stage", range(4))
def test_each_engine_continues_what_the_other_began(stage, runs, tmp_path):
    assert_equal_runs(runs / "own", runs / f"continued-{stage}")
    shutil.copytree(runs / f"zero-{stage}/checkpoints/step-000002", tmp_path / "checkpoints/step-000002")
    zero_stages.run(tmp_path, resume=True)
    assert_equal_runs(runs / "own", tmp_path)


@needs_deepspeed
def test_no_file_is_a_pickle(runs):
    files = [file for file in runs.rglob("*") if file.is_file()]
    assert {"network-00002-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"} < {f.name for f in files}
    assert not [file for file in files if is_pickle(file.read_bytes())]
    assert is_pickle(pickle.dumps({"step": 1.0}))


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        ({"engine": "deepspeed", "sharded": True}, "with deepspeed set zero: 3"),
        ({"engine": "deepspeed", "tensor": 2}, "tensor belongs to weft's own engine"),
        ({"zero": 1}, "set engine: deepspeed as well"),
        ({"engine": "deepspeed"}, "ZeRO 2 cuts them into flat parts. Set pretrain.optimizer: adamw"),
        ({"engine": "deepspeed", "zero": 3}, "ZeRO 3 cuts them into flat parts. Set pretrain.optimizer: adamw"),
    ],
)
def test_what_does_not_go_together_is_refused(processes, message, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    settings = {"corpus": {"sources": [{"path": "a.txt"}]}, "tokenizer": {"kind": "char"}, "processes": processes}
    with pytest.raises(RecipeError, match=message):
        check_pretrain(check_recipe(settings), tmp_path)


def test_a_missing_deepspeed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    load_deepspeed.cache_clear()
    with pytest.raises(InputError, match=r'^deepspeed is needed .*: pip install "weft\[deepspeed\]"\.$'):
        load_deepspeed("cpu")


def test_a_lost_process_is_told_from_other_errors():
    with pytest.raises(ProcessLost, match="Process 3 has lost the others"), lost_processes_noticed(3):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4321")
    with pytest.raises(RuntimeError, match="mat1 and mat2"), lost_processes_noticed(3):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_shared_rows_are_all_rows_once(world):
    for rows in (1, 2, 7, 8, 9):
        found = [row for rank in range(world) for row in shared_rows(rows, rank, world)]
        assert found == list(range(rows))


def test_a_twin_has_parameters_of_its_own_and_the_same_numbers():
    network = weft.create("gpt2", **zero_stages.SHAPE, embedding_dropout=0.0).network
    twin = _twin(network)
    for own, given in zip(twin.parameters(), network.parameters(), strict=True):
        assert isinstance(own, nn.Parameter)
        assert own is not given
        assert own.data_ptr() == given.data_ptr()
    assert twin.heads["causal"].out.weight is twin.embed.tokens.weight
