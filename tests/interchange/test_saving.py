import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import weft
from weft.errors import FolderError
from weft.interchange.folder import read_model_config

SHAPE = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}
SEQUENCES = [[1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("lstm", {"vocabulary": 50, "layers": 2, "width": 16}),
        ("bert", {**SHAPE, "positions": "rotary"}),
        ("gpt2", {**SHAPE, "positions": "relative"}),
        ("llama", {**SHAPE, "positions": "learned"}),
        ("llama", {**SHAPE, "activation": "relu-squared", "dropout": 0.1}),
        ("qwen3", {**SHAPE, "feedforward_bias": True}),
        ("modernbert", {**SHAPE, "positions": "sinusoidal"}),
    ],
)
def test_what_hugging_face_cannot_express_is_saved_in_wefts_own_format_and_says_so(family, options, tmp_path, capfd):
    model = weft.create(family, seed=4, **options)
    assert model.format == "weft"
    model.save(tmp_path)
    assert "weft's own format" in capfd.readouterr().err
    assert read_model_config(tmp_path)["model_type"] == "weft"
    again = weft.load(tmp_path)
    assert again.family == family
    assert again.network.architecture == model.network.architecture
    for name, weight in again.network.named_parameters():
        assert torch.equal(weight, model.network.get_parameter(name)), name
    for a, b in zip(model.logits(SEQUENCES), again.logits(SEQUENCES), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)  # a loaded model computes with kernels, a created one with torch


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("embedding.vocabulary", "50", "embedding.vocabulary is '50'"),
        ("embedding.colour", 1, "embedding.colour is not a setting"),
        ("recurrent.layers", -1, "out of range"),
        ("heads", 3, "heads is not a list"),
        ("embedding", 3, "embedding is not an object"),
        ("init.kind", "magic", "not one of normal, t5"),
    ],
)
def test_a_broken_architecture_is_refused_by_its_path(path, value, says, tmp_path):
    weft.create("lstm", vocabulary=50, layers=2, width=16).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    place = config["architecture"]
    *above, last = path.split(".")
    for part in above:
        place = place[part]
    place[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FolderError, match=says):
        weft.load(tmp_path)


def test_saving_twice_writes_the_same_weights_and_config(tmp_path):
    model = weft.create("t5", **SHAPE)
    model.save(tmp_path / "a")
    weft.load(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert (tmp_path / "a/config.json").read_bytes() == (tmp_path / "b/config.json").read_bytes()


def test_saving_over_a_model_keeps_a_persons_files_and_drops_the_old_weights(tmp_path):
    model = weft.create("bert", **SHAPE)
    model.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/plot.svg").write_text("<svg/>")
    (tmp_path / "pytorch_model.bin").write_bytes(b"old")
    weft.create("gpt2", **SHAPE).save(tmp_path)
    assert weft.load(tmp_path).family == "gpt2"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "figures/plot.svg").exists()
    assert not (tmp_path / "pytorch_model.bin").exists()


def test_saving_into_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FolderError, match="holds other things"):
        weft.create("bert", **SHAPE).save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_labels_and_foreign_config_keys_survive(tmp_path):
    model = weft.create("bert", **SHAPE, head="sequence", labels=3)
    model.save(tmp_path / "a")
    config = json.loads((tmp_path / "a/config.json").read_text())
    config |= {"id2label": {"0": "bad", "1": "so-so", "2": "good"}, "problem_type": "single_label_classification"}
    (tmp_path / "a/config.json").write_text(json.dumps(config))
    again = weft.load(tmp_path / "a")
    assert again.labels == ("bad", "so-so", "good")
    again.save(tmp_path / "b")
    saved = json.loads((tmp_path / "b/config.json").read_text())
    assert saved["id2label"] == config["id2label"]
    assert saved["problem_type"] == "single_label_classification"


def test_a_save_that_fails_leaves_the_old_folder_whole_and_nothing_beside_it(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    weft.create("bert", **SHAPE, seed=1).save(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("weft.interchange.folder.write_tensors", full)
    with pytest.raises(weft.WeftError, match="No space left"):
        weft.create("bert", **SHAPE, seed=2).save(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


SAVER = """
import sys, weft
models = [weft.create("bert", vocabulary=4000, layers=2, width=64, heads=2, seed=seed) for seed in (1, 2)]
print("ready", flush=True)
turn = 0
while True:
    models[turn % 2].save(sys.argv[1])
    turn += 1
    print(turn, flush=True)
"""


def test_a_save_killed_at_any_moment_leaves_one_whole_folder(tmp_path):
    folder = tmp_path / "model"
    models = [weft.create("bert", vocabulary=4000, layers=2, width=64, heads=2, seed=seed) for seed in (1, 2)]
    wanted = [model.network.state_dict() for model in models]
    models[0].save(folder)
    chance = random.Random(0)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", SAVER, folder], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        process.stdout.readline()  # at least one save is done
        time.sleep(chance.random() * 0.1)  # where in the next one the kill falls
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        found = weft.load(folder).network.state_dict()
        assert any(all(torch.equal(found[name], want[name]) for name in want) for want in wanted)
        assert (folder / "weft.json").exists()


def test_the_manifest_knows_when_a_file_was_changed(tmp_path):
    from weft.folders import changed_files

    weft.create("bert", **SHAPE).save(tmp_path)
    assert changed_files(tmp_path) == []
    with (tmp_path / "config.json").open("a") as file:
        file.write(" ")
    assert changed_files(tmp_path) == ["config.json"]


def test_weights_are_plain_files_that_safetensors_opens(tmp_path):
    weft.create("bert", **SHAPE).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["bert.encoder.layer.0.attention.self.query.weight"].shape == (16, 16)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors", "weft.json"]


def test_only_the_models_own_files_are_replaced(tmp_path):
    weft.create("bert", **SHAPE).save(tmp_path / "model")
    mine = ["corpus.bin", "adapter_model.safetensors", "embeddings.safetensors"]
    for name in mine:
        (tmp_path / "model" / name).write_bytes(b"mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "model").chmod(0o700)
    (tmp_path / "model/vocab.txt").write_text("of the old model")
    weft.create("gpt2", **SHAPE).save(tmp_path / "model")
    assert all((tmp_path / "model" / name).read_bytes() == b"mine" for name in mine)
    assert (tmp_path / "model/link").is_symlink()
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "model/vocab.txt").exists()


def test_a_generation_config_stays_as_it_was(tmp_path):
    weft.create("gpt2", **SHAPE).save(tmp_path / "a")
    wanted = {"max_length": 30, "num_beams": 4, "eos_token_id": [1, 2]}
    (tmp_path / "a/generation_config.json").write_text(json.dumps(wanted))
    weft.load(tmp_path / "a").save(tmp_path / "b")
    saved = json.loads((tmp_path / "b/generation_config.json").read_text())
    assert {key: saved[key] for key in wanted} == wanted


def test_wefts_own_format_keeps_labels_and_heads(tmp_path):
    model = weft.create("bert", **SHAPE, positions="rotary", head="masked+next-sentence")
    model.save(tmp_path / "pair")
    assert weft.load(tmp_path / "pair").description.head == "masked+next-sentence"
    weft.create("bert", **SHAPE, positions="rotary", head="sequence", labels=3).save(tmp_path / "labels")
    config = json.loads((tmp_path / "labels/config.json").read_text())
    assert config["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    assert weft.load(tmp_path / "labels").labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_fresh_model_takes_its_special_ids_from_its_tokenizer(tmp_path):
    from pathlib import Path

    from weft.tokenizer.train import train_tokenizer

    alice = Path(__file__).parents[2] / "examples/alice.txt"
    for family, kind in (("llama", "bpe"), ("t5", "unigram"), ("transformer", "unigram"), ("modernbert", "wordpiece")):
        tokenizer = train_tokenizer([alice], kind, 400, family=family)
        weft.create(family, layers=1, width=16, heads=2, tokenizer=tokenizer).save(tmp_path / family)
        config = json.loads((tmp_path / family / "config.json").read_text())
        for role in tokenizer.special:
            assert config[f"{role}_token_id"] == tokenizer.id_of(role)
        assert weft.load(tmp_path / family).tokenizer.encode("alice") == tokenizer.encode("alice")


def test_a_full_disk_is_reported_as_such(tmp_path):
    """The operating system refuses to let a file grow, as a full disk does."""
    code = """
import resource, signal, sys, weft
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = weft.create("bert", vocabulary=4000, layers=1, width=64, heads=2)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    model.save(sys.argv[1])
except weft.WeftError as error:
    print(error)
"""
    folder = tmp_path / "model"
    weft.create("bert", **SHAPE).save(folder)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert "No space left" in done.stdout, done.stderr
    assert weft.load(folder).network.architecture.width == 16
    assert [item.name for item in tmp_path.iterdir()] == ["model"]


def test_saving_where_the_program_runs_or_may_not_write_is_refused(tmp_path, monkeypatch):
    model = weft.create("bert", **SHAPE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match="contains the current folder"):
        model.save(".")
    (tmp_path / "file").write_text("")
    for path in ("file", "file/x", "a\0b"):
        with pytest.raises(FolderError):
            model.save(path)
    model.save("fine")
    assert (tmp_path / "fine/model.safetensors").stat().st_mode & 0o777 == (tmp_path / "file").stat().st_mode & 0o777
