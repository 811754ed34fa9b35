"""Checkpoints that are written while training goes on."""

import errno
import os
import signal
import threading

import pytest
import torch
from test_processes import run, spec

from thread_processes import run_as_processes
from weft.errors import FolderError
from weft.train import pending_checkpoint
from weft.train.engine import Diverged
from weft.train.loop import Hooks, Interrupted
from weft.train.pending_checkpoint import PendingCheckpoint, list_checkpoints
from weft.train.processes import Processes
from weft.train.stored_parts import OwnFile, file_of_parts

EVERY_TWO = {"checkpoint_every": 2, "validate_every": 100, "keep": 9}


def contents(folder):
    """Every file of a folder, with its bytes."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def any_size(monkeypatch):
    monkeypatch.setattr(pending_checkpoint, "LEAST_BYTES", 0)


@pytest.fixture
def held(any_size, monkeypatch):
    """The files of checkpoints are not written before the event is set."""
    event = threading.Event()

    def write(file, folder):
        assert event.wait(60)
        return written(file, folder)

    written = OwnFile.write
    monkeypatch.setattr(OwnFile, "write", write)
    yield event
    event.set()


def at_step(number, act):
    """A rule that never stops a run, and acts after a step."""

    def rule(facts, state):
        if state.step == number:
            act()

    return Hooks(stop_rules=[rule], measure=lambda: {"validation_loss": 1.0})


@pytest.mark.parametrize("world", [1, 2])
def test_steps_taken_while_a_checkpoint_is_written_are_not_in_it(world, tmp_path, held, monkeypatch):
    settings = spec(6, pieces=2, checkpoint_every=3, validate_every=5, keep=9)
    seen = []

    def release():
        seen.append([item.name for item in (tmp_path / "held/checkpoints").iterdir()])
        held.set()

    def trained(processes):
        run(tmp_path / ("held" if processes.is_first else "unused"), processes, settings, hooks=at_step(5, release))

    run_as_processes(world, trained)
    assert len(seen) == world
    assert [name[:16] for names in seen for name in names] == [".step-000003.new"] * world

    with monkeypatch.context() as patched:
        patched.setattr(pending_checkpoint, "LEAST_BYTES", 1 << 40)
        run(tmp_path / "at-once", Processes(device="cpu"), settings, hooks=at_step(5, lambda: None))
    found = [contents(tmp_path / name / "checkpoints") for name in ("held", "at-once")]
    assert {name.split("/")[0] for name in found[0]} == {"step-000003", "step-000005", "step-000006"}
    assert found[0] == found[1]


def test_the_next_checkpoint_waits_for_the_one_before(tmp_path, held):
    threading.Timer(0.5, held.set).start()
    run(tmp_path, settings=spec(6, **EVERY_TWO))
    assert list_checkpoints(tmp_path / "checkpoints") == [2, 4, 6]


def test_an_error_of_training_leaves_nothing_half_written(tmp_path, held):
    def fail():
        held.set()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(tmp_path, settings=spec(8, checkpoint_every=3, validate_every=5), hooks=at_step(5, fail))
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_checkpoint_on_its_way_when_training_diverges_is_kept(tmp_path, held):
    def measure():
        held.set()
        return {"validation_loss": float("nan")}

    settings = spec(8, checkpoint_every=3, validate_every=5)
    with pytest.raises(Diverged):
        run(tmp_path, settings=settings, hooks=Hooks(measure=measure))
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["step-000003"]


def test_a_disk_found_full_while_training_goes_on_ends_all_and_keeps_the_one_before(tmp_path, any_size, monkeypatch):
    def full_at_four(file, folder):
        if "step-000004" in folder.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(file, folder)

    written = OwnFile.write
    monkeypatch.setattr(OwnFile, "write", full_at_four)

    def trained(processes):
        with pytest.raises(FolderError, match="No space left on the disk"):
            run(tmp_path if processes.is_first else tmp_path / "unused", processes, spec(8, pieces=2, **EVERY_TWO))

    run_as_processes(2, trained)
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]


def test_without_room_for_a_copy_training_waits_and_says_so_once(tmp_path, any_size, monkeypatch, capfd):
    monkeypatch.setattr(pending_checkpoint, "free_memory", lambda: 1000)
    monkeypatch.setattr(OwnFile, "copy_tensors", lambda file: pytest.fail("there is no room"))
    run(tmp_path, settings=spec(6, **EVERY_TWO))
    assert list_checkpoints(tmp_path / "checkpoints") == [2, 4, 6]
    assert capfd.readouterr().err.count("no memory for a copy") == 1


@pytest.mark.parametrize(("free", "waits"), [(399, True), (400, False), (None, True)])
def test_all_processes_of_a_machine_share_its_free_memory(free, waits, tmp_path, any_size, monkeypatch):
    monkeypatch.setattr(pending_checkpoint, "free_memory", lambda: free)

    def saved(processes):
        files = file_of_parts({"weight": torch.ones(25)}, {}, "network", processes)  # 100 bytes in each of two
        options = {"keep": 1, "state": {}, "processes": processes, "at_once": False}
        checkpoint = PendingCheckpoint(tmp_path, 1, files, **options)
        checkpoint.finish()
        return checkpoint.is_waiting

    assert run_as_processes(2, saved) == [waits, waits]


def test_a_run_that_goes_on_removes_what_a_killed_one_left(tmp_path):
    left = tmp_path / "checkpoints/.step-000002.new-abc"
    left.mkdir(parents=True)
    (left / "network.safetensors").write_bytes(b"half")
    run(tmp_path, settings=spec(2))
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]


def test_a_run_that_is_stopped_keeps_the_checkpoint_on_its_way_and_the_newest(tmp_path, held):
    threading.Timer(0.5, held.set).start()
    settings = spec(8, **{**EVERY_TWO, "validate_every": 3})
    with pytest.raises(Interrupted):
        run(tmp_path, settings=settings, hooks=at_step(3, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert list_checkpoints(tmp_path / "checkpoints") == [2, 3]
