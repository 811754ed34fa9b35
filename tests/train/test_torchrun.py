"""Several processes started by torchrun: the same bytes as one, whoever dies on the way."""

import hashlib
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

import weft
from kill_test import kill_and_compare, losses, wait, write_recipe
from weft.commands.run import run_recipe
from weft.errors import InputError
from weft.model.packed import pack
from weft.recipe.recipe import Recipe
from weft.train import process_group
from weft.train.process_group import ProcessGroup, ProcessLost, joined_processes
from weft.train.run_folder import claim

LAUNCHER = ["-m", "torch.distributed.run", "--nproc-per-node"]
EXACT = ("pretrain.pieces=8", "pretrain.threads=1", "pretrain.clip=0.3")

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
    places = filter(None, [path and str(path), os.environ.get("PYTHONPATH")])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def digest(run):
    return hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_any_number_of_processes_gives_the_same_bytes(family, tmp_path):
    """With dropout, clipping, accumulation and unequal lengths; gpt2 with Muon, bert with next sentences."""
    recipe = write_recipe(family, tmp_path, 8)
    sharded = [*EXACT, "processes.sharded=true"]
    started = {"one": (1, EXACT), "two": (2, EXACT), "sharded": (3 if family == "gpt2" else 2, sharded)}
    for name, (number, settings) in started.items():
        done = launch(number, "pretrain", recipe, "-o", tmp_path / name, *settings)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Plan: ") == 1  # one process speaks
        assert digest(tmp_path / name) == digest(tmp_path / "one")
        assert losses(tmp_path / name) == losses(tmp_path / "one")
    parts = {file.name for file in (tmp_path / "sharded/checkpoints/step-000008").iterdir()}
    last = started["sharded"][0]
    assert f"network-{last:05}-of-{last:05}.safetensors" in parts


def test_a_tensor_parallel_run_goes_on_fully_sharded(tmp_path):
    """Killed half-way. The losses are those of one process but for rounding; the model is an ordinary folder."""
    recipe, settings = write_recipe("qwen3", tmp_path, 8), (*EXACT, "pretrain.dropout=0", "model.dropout=0")
    (tmp_path / "sitecustomize.py").write_text(SUICIDE)
    weft.pretrain(recipe, settings, output=tmp_path / "one")
    run = tmp_path / "run"
    begun = launch(2, "pretrain", recipe, "-o", run, *settings, "processes.tensor=2", path=tmp_path)
    assert begun.returncode != 0
    assert (run / "checkpoints/step-000003/network-00002-of-00002.safetensors").is_file()
    ended = launch(2, "pretrain", recipe, "-o", run, *settings, "processes.sharded=true", "--resume")
    assert ended.returncode == 0, ended.stderr
    assert "Resuming from step 3." in ended.stderr
    one, two = ([line["loss"] for line in losses(folder)] for folder in (tmp_path / "one", run))
    assert two == pytest.approx(one, rel=1e-4)
    theirs = AutoModelForCausalLM.from_pretrained(run / "model").eval()
    ours, tokens = weft.load(run / "model").network.eval(), [5, 9, 33, 8]
    with torch.no_grad():
        logits = ours.head("causal")(ours(pack([tokens])), pack([tokens]))
        torch.testing.assert_close(logits, theirs(torch.tensor([tokens])).logits[0], atol=1e-4, rtol=1e-4)


def test_what_only_four_processes_can_show(tmp_path):
    """What tensor parallel peers send; their dropout; checkpoints of each layout opened in each."""
    script = Path(__file__).with_name("four_processes.py")
    places = os.pathsep.join([*sys.path, str(script.parents[2] / "scripts")])
    done = subprocess.run(
        [sys.executable, *LAUNCHER, "4", script, tmp_path / "saved"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": places},
    )
    assert done.stdout == "all is right\n", done.stderr


def test_sharded_processes_that_are_not_exact_reach_almost_the_same(tmp_path):
    recipe, plain = write_recipe("gpt2", tmp_path, 8), (*EXACT, "pretrain.dropout=0")
    fast = ("processes.sharded=true", "processes.exact=false")
    for name, (number, settings) in {"one": (1, plain), "fast": (2, (*plain, *fast))}.items():
        done = launch(number, "pretrain", recipe, "-o", tmp_path / name, *settings)
        assert done.returncode == 0, done.stderr
    one, two = ([line["loss"] for line in losses(tmp_path / name)] for name in ("one", "fast"))
    assert two == pytest.approx(one, rel=1e-5)


def test_killed_processes_go_on_in_another_number(tmp_path):
    assert kill_and_compare("gpt2", kills=2, steps=120, place=tmp_path, seed=5, processes=[1, 3, 2]) == 2


def test_two_processes_finetune_to_the_bytes_of_one(tmp_path):
    recipe = write_recipe("tag", tmp_path, 6)
    for name, number in {"one": 1, "two": 2}.items():
        done = launch(number, "finetune", recipe, "-o", tmp_path / name, "finetune.pieces=8", "finetune.threads=1")
        assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "two") == digest(tmp_path / "one")
    assert losses(tmp_path / "two") == losses(tmp_path / "one")


def test_distillation_and_chains_in_several_processes_are_refused(place_of, tmp_path):
    place_of()
    with pytest.raises(InputError, match="weft distil works in one process"):
        weft.distil(tmp_path / "recipe.yml")
    with pytest.raises(InputError, match="weft run works in one process"):
        run_recipe(Recipe(), tmp_path, tmp_path / "run")


def test_processes_end_with_their_torchrun(tmp_path):
    """SIGKILL, which torchrun cannot pass on: its processes save and end all the same."""
    recipe = write_recipe("gpt2", tmp_path, 100_000)
    command = [sys.executable, *LAUNCHER, "2", "-m", "weft", "pretrain", str(recipe), "-o", str(tmp_path / "run")]
    with subprocess.Popen([*command, *EXACT], stderr=subprocess.PIPE, text=True) as launcher:
        try:
            wait(launcher, (tmp_path / "run/checkpoints/step-000003").exists, 120)
            workers = psutil.Process(launcher.pid).children()
        finally:
            launcher.kill()
        _, left = psutil.wait_procs(workers, timeout=120)
        said = launcher.stderr.read()
    assert len(workers) == 2
    assert not left
    assert "weft: Stopped at step" in said  # by each: their store has ended with torchrun
    assert "bug in weft" not in said


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


@pytest.fixture
def place_of(monkeypatch):
    """Sets what a launcher tells the first of two processes, and changes to it. Returns the port where they meet."""

    def told(**changes):
        port = free_port()
        usual = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for name, value in (usual | changes).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(process_group, "JOIN_SECONDS", 1.0)
        monkeypatch.setattr(process_group, "end_with_parent", lambda: None)  # pytest itself must not end
        return int(port)

    return told


def join():
    with joined_processes():
        pass


@contextmanager
def somebody_who_says(port, names):
    """A second process that comes to the meeting place, says something, and does nothing else."""

    def say():
        store = dist.TCPStore("127.0.0.1", port, 2, is_master=False, timeout=timedelta(seconds=20))
        for name, value in names.items():
            store.set(f"weft/0/{name}", value)

    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(say)
        yield
    said.result()


def test_a_process_that_finds_nobody_says_so(place_of):
    """The others never come."""
    place_of()
    with pytest.raises(ProcessLost, match=r"Process 0 of 2 did not find the others at 127\.0\.0\.1:\d+ within 1 s"):
        join()


def test_a_process_that_comes_but_cannot_be_reached_is_noticed(place_of):
    with (
        somebody_who_says(place_of(), {"here/1": "2"}),
        pytest.raises(ProcessLost, match="could not connect to all others within 1 s"),
    ):
        join()


@pytest.mark.parametrize(
    ("said", "message"),
    [({"here/1": "3"}, "WORLD_SIZE is 2 in process 0 and 3 in process 1"), ({"came/0": "1"}, "have RANK 0")],
)
def test_processes_that_were_told_different_things_say_so(said, message, place_of):
    with somebody_who_says(place_of(), said), pytest.raises(InputError, match=message):
        join()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"RANK": "2"}, "RANK is 2 and WORLD_SIZE 2"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
    ],
)
def test_wrong_words_of_a_launcher_are_one_sentence(told, message, place_of):
    place_of(**told)
    with pytest.raises(InputError, match=message):
        join()


def test_a_first_process_that_falls_silent_is_noticed(monkeypatch):
    monkeypatch.setattr(process_group, "_SILENT_SECONDS", 0.3)
    group = ProcessGroup(1, 2, "cpu", store=dist.HashStore())
    with pytest.raises(ProcessLost, match="has not heard of the first one"), group.first_goes_ahead():
        pass


def test_a_folder_is_claimed_with_signs_of_life(tmp_path):
    """The first process hashes the corpus, which may take longer than a step may."""
    store = dist.HashStore()
    group = ProcessGroup(0, 2, "cpu", store=store)
    with claim(tmp_path / "run", Recipe(), tmp_path, resume=False, processes=group):
        assert store.check(["beat"]) and store.check(["done/0"])


class Gone(dist.HashStore):
    """The first process kept it, and has ended."""

    def check(self, names):
        raise dist.DistNetworkError("Connection was likely closed.")


def test_a_store_that_ended_with_the_first_process_hides_no_error():
    process_group._fail_once(ProcessGroup(1, 2, "cpu", store=Gone()), ProcessLost("The others are gone."))


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return str(place.getsockname()[1])
