"""Several processes started by torchrun: the same bytes as one, whoever dies on the way."""

import hashlib
import os
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist

from kill_test import kill_and_compare, losses, write_recipe
from weft.train import process_group
from weft.train.process_group import ProcessGroup, ProcessLost, joined_processes

LAUNCHER = ["-m", "torch.distributed.run", "--nproc-per-node"]
EXACT = ("pretrain.pieces=8", "pretrain.threads=1")

# Python runs a file of this name first. The second process of a run changes a step of the engine.
IN_THE_SECOND = """
import os
if os.environ.get("RANK") == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    from weft.train.engine import Engine
    real = Engine.take_step
    def changed(self, pieces, number, rate=1.0):
        if number == 5:
            {change}
        return real(self, pieces, number, rate)
    Engine.take_step = changed
"""
SUICIDE = IN_THE_SECOND.format(change="os.kill(os.getpid(), 9)")
NOT_A_NUMBER = IN_THE_SECOND.format(change="next(self.step.network.parameters()).data.fill_(float('nan'))")


def launch(processes, *arguments, launcher=(), path=None):
    started = [*LAUNCHER, str(processes), *launcher] if processes > 1 else []
    command = [sys.executable, *started, "-m", "weft", *map(str, arguments)]
    environment = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def digest(run):
    return hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_any_number_of_processes_gives_the_same_bytes(family, tmp_path):
    """With dropout, clipping, accumulation and unequal lengths; gpt2 with Muon, bert with next sentences."""
    recipe = write_recipe(family, tmp_path, 8)
    for number in (1, 2, 3) if family == "gpt2" else (1, 2):
        done = launch(number, "pretrain", recipe, "-o", tmp_path / str(number), *EXACT)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Plan: ") == 1  # one process speaks
        assert digest(tmp_path / str(number)) == digest(tmp_path / "1")
        assert losses(tmp_path / str(number)) == losses(tmp_path / "1")


def test_killed_processes_go_on_in_another_number(tmp_path):
    assert kill_and_compare("gpt2", kills=2, steps=120, place=tmp_path, seed=5, processes=[1, 3, 2]) == 2


def test_more_processes_than_pieces_are_one_sentence(tmp_path):
    recipe = write_recipe("gpt2", tmp_path, 8)
    done = launch(3, "pretrain", recipe, "-o", tmp_path / "run", "pretrain.pieces=2")
    assert done.returncode != 0
    assert done.stderr.count("A step has 2 pieces, fewer than the 3 processes.") == 1


def test_processes_that_die_are_started_again_and_go_on(tmp_path):
    """torchrun --max-restarts, with a process that kills itself once."""
    recipe = write_recipe("gpt2", tmp_path, 12)
    (tmp_path / "sitecustomize.py").write_text(SUICIDE)
    done = launch(
        2, "pretrain", recipe, "-o", tmp_path / "run", *EXACT, launcher=["--max-restarts", "1"], path=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Resuming from step" in done.stderr
    alone = launch(1, "pretrain", recipe, "-o", tmp_path / "alone", *EXACT)
    assert alone.returncode == 0, alone.stderr
    assert digest(tmp_path / "run") == digest(tmp_path / "alone")


def test_a_loss_that_is_not_finite_in_one_process_stops_all(tmp_path):
    recipe = write_recipe("gpt2", tmp_path, 12)
    (tmp_path / "sitecustomize.py").write_text(NOT_A_NUMBER)
    done = launch(2, "pretrain", recipe, "-o", tmp_path / "run", *EXACT, path=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("weft: At step 6 the loss is nan") == 1
    assert sorted(item.name for item in (tmp_path / "run/checkpoints").iterdir()) == ["step-000003"]


def test_a_process_that_finds_nobody_says_so(monkeypatch):
    """The others never come."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process_group, "JOIN_SECONDS", 1.0)
    with (
        pytest.raises(ProcessLost, match=r"Process 0 of 2 found nobody at 127\.0\.0\.1:\d+ within 1 s"),
        joined_processes(),
    ):
        pass


def test_a_first_process_that_falls_silent_is_noticed(monkeypatch):
    monkeypatch.setattr(process_group, "_SILENT_SECONDS", 0.3)
    group = ProcessGroup(1, 2, "cpu", store=dist.HashStore())
    with pytest.raises(ProcessLost, match="has not heard of the first one"), group.first_goes_ahead():
        pass


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return str(place.getsockname()[1])
