"""The folder of a run: who may use it, what it survives, how it is resumed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_recipes import recipe, weft_command

from weft.errors import FolderError, InputError, RecipeError
from weft.recipe.file import read_recipe
from weft.train import pretrain as pretrain_module
from weft.train.pretrain import pretrain
from weft.train.run_folder import locked_run


def test_a_run_that_was_prepared_first_is_the_same_run(place, tmp_path):
    made = recipe(place, pretrain={"precision": "float32"})
    assert pretrain_module.prepare(made, place, tmp_path / "prepared") > 0
    assert not list((tmp_path / "prepared").glob("checkpoints/*"))
    pretrain(made, place, tmp_path / "prepared", resume=True)
    pretrain(made, place, tmp_path / "direct")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("prepared", "direct")]
    assert weights[0] == weights[1]


def test_a_run_that_failed_early_leaves_nothing_to_a_later_one(place, tmp_path):
    (place / "growing.txt").write_text("short")
    made = recipe(place, "growing.yml", corpus={"sources": [{"path": "growing.txt"}]})
    with pytest.raises(InputError, match="fewer than one sequence"):
        pretrain(made, place, tmp_path / "run")
    (place / "growing.txt").write_text("long enough now, and with other letters: xyz. " * 100)
    assert pretrain(made, place, tmp_path / "run")["steps"] == 6


def test_a_model_folder_is_not_taken_for_a_run(place, tmp_path):
    pretrain(recipe(place), place, tmp_path / "run")
    with pytest.raises(FolderError, match="holds a model, not a run"):
        pretrain(recipe(place), place, tmp_path / "run/model")


def test_a_second_run_in_the_same_folder_is_refused_and_a_resumed_one_must_be_the_same(place, tmp_path):
    made = recipe(place)
    pretrain(made, place, tmp_path / "run")
    with pytest.raises(FolderError, match="holds a run already at step 6: --resume"):
        pretrain(made, place, tmp_path / "run")
    other = recipe(place, pretrain={"seed": 2})
    with pytest.raises(RecipeError, match=r"pretrain\.seed was 1 and is 2"):
        pretrain(other, place, tmp_path / "run", resume=True)
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    pretrain(made, place, tmp_path / "run", resume=True)
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before


def test_a_folder_that_another_run_is_at_work_in_is_refused(place, tmp_path):
    made = recipe(place)
    pretrain(made, place, tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.is_file()}
    told = rf"run is in use by another run\. It is process {os.getpid()} on .*, since "
    with locked_run(tmp_path / "run"), pytest.raises(FolderError, match=told):
        pretrain(made, place, tmp_path / "run", resume=True)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.is_file()} == before
    assert pretrain(made, place, tmp_path / "run", resume=True)["steps"] == 6


def test_a_damaged_checkpoint_is_skipped_with_a_message(place, tmp_path, capsys):
    made = recipe(place, pretrain={"checkpoint_every": 2, "keep": 3})
    pretrain(made, place, tmp_path / "run")
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    newest = tmp_path / "run/checkpoints/step-000006/network.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    pretrain(made, place, tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert "network.safetensors is damaged. Skipping" in said
    assert "Resuming from step 4" in said
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before


def test_a_run_without_a_checkpoint_starts_again_and_says_so(place, tmp_path, capsys):
    made = recipe(place)
    pretrain(made, place, tmp_path / "run")
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run/checkpoints")
    shutil.rmtree(tmp_path / "run/model")
    pretrain(made, place, tmp_path / "run", resume=True)
    assert "No checkpoint yet: training starts at step 0." in capsys.readouterr().err
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before


FILLS_UP = """
import resource, sys
import weft.cli
from weft.train.pending_checkpoint import PendingCheckpoint
real = PendingCheckpoint.finish
def finish_and_fill(self):
    place = real(self)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # from now on no file may grow larger
    return place
PendingCheckpoint.finish = finish_and_fill
weft.cli.main()
"""


def test_a_disk_that_fills_up_loses_no_earlier_checkpoint(place, tmp_path):
    recipe(place, "full.yml", pretrain={"checkpoint_every": 2, "validate_every": 6, "precision": "float32"})
    command = [sys.executable, "-c", FILLS_UP, "pretrain", str(place / "full.yml"), "-o", str(tmp_path / "full")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert re.search(r"No space left on the disk while writing \S+step-000004", done.stderr)
    assert [item.name for item in (tmp_path / "full/checkpoints").iterdir()] == ["step-000002"]
    assert weft_command("pretrain", place / "full.yml", "-o", tmp_path / "full", "--resume").returncode == 0
    pretrain(read_recipe(place / "full.yml"), place, tmp_path / "unbroken")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("full", "unbroken")]
    assert weights[0] == weights[1]


def test_the_command_prints_json_and_says_how_to_resume(place, tmp_path):
    recipe(place, "json.yml", pretrain={"budget": "2 steps"})
    done = weft_command("pretrain", place / "json.yml", "-o", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    again = weft_command("pretrain", place / "json.yml", "-o", tmp_path / "run")
    assert again.returncode == 2
    assert "--resume continues it" in again.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(place, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderError, match="cannot be written"):
        pretrain(recipe(place), place, tmp_path / "run")


def test_a_place_that_cannot_be_written_is_refused(place):
    with pytest.raises(FolderError, match="cannot be written"):
        pretrain(recipe(place), place, Path("/proc/weft-run"))


def test_other_peoples_folders_are_left_alone(place, tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(FolderError, match="holds other files"):
        pretrain(recipe(place), place, tmp_path)
