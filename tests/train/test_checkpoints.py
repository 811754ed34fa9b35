import pytest
import torch

import weft
from weft.errors import FolderError
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.train.checkpoints import list_checkpoints, restore_newest, save_checkpoint
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate

SHAPE = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}


def start(kind):
    network = weft.create("gpt2", **SHAPE, dropout=0.1, seed=1).network.train()
    return network, make_optimizers(network, OptimizerSpec(kind))


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


def test_only_the_newest_and_the_best_stay(tmp_path):
    network, optimizers = start("adamw")
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, network, optimizers, keep=2, state={"best": 2})
    assert list_checkpoints(tmp_path) == [2, 5, 6]


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
