"""Several processes started by torchrun: the same bytes as one, whoever dies on the way."""

import hashlib
import subprocess
import sys

import pytest

from kill_test import kill_and_compare, losses, write_recipe

LAUNCHER = ["-m", "torch.distributed.run", "--nproc-per-node"]
EXACT = ("pretrain.pieces=8", "pretrain.threads=1")


def launch(processes, *arguments, launcher=()):
    started = [*LAUNCHER, str(processes), *launcher] if processes > 1 else []
    command = [sys.executable, *started, "-m", "weft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


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
