import errno
import pickle
from pathlib import Path

import pytest
import torch

import weft
from checkpoint_matrix import differences, find_pickles, layouts, make_engine, save
from thread_processes import run_as_processes
from weft.errors import FolderError
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.train.checkpoints import list_checkpoints, restore_newest, restore_weights, training_files
from weft.train.grid import arranged
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.pending_checkpoint import PendingCheckpoint
from weft.train.processes import Processes
from weft.train.stored_parts import OwnFile, file_of_parts

SHAPE = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}


def start(kind):
    network = weft.create("gpt2", **SHAPE, dropout=0.1, seed=1).network.train()
    return network, make_optimizers(network, OptimizerSpec(kind))


def save_checkpoint(folder, step, network, optimizers, *, keep, state):
    files = training_files(network, optimizers, Processes())
    PendingCheckpoint(folder, step, files, keep=keep, state=state, processes=Processes()).finish()


def run(network, optimizers, steps):
    for step in steps:
        torch.manual_seed(step)
        batch = pack([[(step + i) % 50 for i in range(9)]])
        head = network.heads["causal"]
        vocabulary_loss(head, head.prepare(network(batch), batch)[:-1], batch.tokens[1:], scale=1 / 8).backward()
        set_rate(optimizers, 1 - step / 20, step)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_restored_run_ends_with_the_same_bytes_as_an_unbroken_one(kind, tmp_path):
    unbroken, optimizers = start(kind)
    run(unbroken, optimizers, range(10))
    first, optimizers = start(kind)
    run(first, optimizers, range(6))
    save_checkpoint(tmp_path, 6, first, optimizers, keep=2, state={})
    second, optimizers = start(kind)
    state = restore_newest(tmp_path, second, optimizers)
    assert state == {"step": 6}
    run(second, optimizers, range(6, 10))
    for name, parameter in unbroken.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name)), name


def test_a_damaged_checkpoint_is_skipped_with_a_message(tmp_path, capfd):
    network, optimizers = start("adamw")
    run(network, optimizers, range(2))
    for step in (2, 4, 6):
        save_checkpoint(tmp_path, step, network, optimizers, keep=9, state={})
    data = (tmp_path / "step-000006/optimizer.safetensors").read_bytes()
    (tmp_path / "step-000006/optimizer.safetensors").write_bytes(data[:-1] + b"x")
    (tmp_path / "step-000004/state.json").unlink()
    assert restore_newest(tmp_path, network, optimizers)["step"] == 2
    said = capfd.readouterr().err
    assert "step-000006/optimizer.safetensors is damaged" in said
    assert "step-000004" in said


@pytest.mark.parametrize("missing", ["network-00002-of-00002.safetensors", "state.json", "weft.json"])
def test_a_damaged_checkpoint_is_replaced_by_one_of_another_number_of_processes(missing, tmp_path):
    in_threads(2, "tensor 2", lambda processes: save("bert", processes, tmp_path))
    (tmp_path / "step-000005" / missing).unlink()
    save("bert", Processes(device="cpu"), tmp_path)
    names = sorted(file.name for file in (tmp_path / "step-000005").iterdir())
    assert names == ["network.safetensors", "optimizer.safetensors", "state.json", "weft.json"]
    assert differences("bert", Processes(device="cpu"), tmp_path)[1] == 0


def test_a_full_disk_in_one_process_is_told_to_all_and_takes_nothing_away(tmp_path, monkeypatch):
    network, optimizers = start("adamw")
    run(network, optimizers, range(2))
    save_checkpoint(tmp_path, 2, network, optimizers, keep=1, state={})

    def full_in_the_second(file, folder):
        if "-00002-" in file.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(file, folder)

    written = OwnFile.write
    monkeypatch.setattr(OwnFile, "write", full_in_the_second)

    def saved(processes):
        files = file_of_parts({"weight": torch.ones(2)}, {}, "network", processes)
        with pytest.raises(FolderError, match="No space left on the disk"):
            PendingCheckpoint(tmp_path, 4, files, keep=1, state={}, processes=processes).finish()

    run_as_processes(2, saved)
    assert [item.name for item in tmp_path.iterdir()] == ["step-000002"]


def test_only_the_newest_and_the_best_stay(tmp_path):
    network, optimizers = start("adamw")
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, network, optimizers, keep=2, state={"best": 2})
    assert list_checkpoints(tmp_path) == [2, 5, 6]


def test_a_later_checkpoint_which_was_skipped_takes_no_place_of_an_intact_one(tmp_path):
    network, optimizers = start("adamw")
    for step in (3, 8, 5):
        save_checkpoint(tmp_path, step, network, optimizers, keep=2, state={})
    assert list_checkpoints(tmp_path) == [3, 5, 8]


def test_nothing_there_is_nothing_restored_and_another_model_is_refused(tmp_path):
    network, optimizers = start("adamw")
    assert restore_newest(tmp_path / "none", network, optimizers) is None
    save_checkpoint(tmp_path, 1, network, optimizers, keep=2, state={})
    other = weft.create("gpt2", **{**SHAPE, "layers": 3}).network
    with pytest.raises(FolderError, match="of another model"):
        restore_newest(tmp_path, other, make_optimizers(other, OptimizerSpec()))
    wide = weft.create("gpt2", **{**SHAPE, "vocabulary": 51}).network
    with pytest.raises(FolderError, match="another shape"):
        restore_newest(tmp_path, wide, make_optimizers(wide, OptimizerSpec()))


def in_threads(world, name, work):
    """In processes that are threads: these cannot share weights fully."""
    return run_as_processes(world, lambda processes: work(arranged(processes, layouts(world)[name])))


ARRANGEMENTS = [(1, "1"), (2, "tensor 2"), (2, "data 2"), (3, "tensor 3"), (4, "data 2 × tensor 2")]


@pytest.mark.parametrize("family", ["bert", "qwen3", "t5"])
def test_a_checkpoint_opens_on_any_number_of_processes(family, tmp_path):
    for world, name in ARRANGEMENTS:
        in_threads(world, name, lambda processes, name=name: save(family, processes, tmp_path / name))
    assert not find_pickles(tmp_path)
    for saved in tmp_path.iterdir():
        for world, name in ARRANGEMENTS:
            found = in_threads(world, name, lambda processes, saved=saved: differences(family, processes, saved))
            assert found[0][0] > 30
            assert not found[0][1], (saved.name, name)


def test_a_checkpoint_that_lacks_a_part_says_so(tmp_path):
    in_threads(2, "tensor 2", lambda processes: save("bert", processes, tmp_path))
    place = tmp_path / "step-000005"
    (place / "network-00002-of-00002.safetensors").unlink()
    with pytest.raises(FolderError, match=r"step-000005 lacks 648 numbers of embed\.tokens\.weight"):
        restore_weights(place, make_engine("bert", Processes(device="cpu")).step.network)


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("name", ["weights.safetensors", "state.json", "weights.bin"])
def test_pickles_are_found(name, protocol, tmp_path):
    (tmp_path / name).write_bytes(pickle.dumps({"a": Path("b")}, protocol))
    assert len(find_pickles(tmp_path)) > 1  # by its bytes, and by what it lacks
