"""A real run is stopped and resumed through the routes, and ends as one that was never stopped."""

import json
from pathlib import Path

import psutil
import pytest

import weft
from watching import ALICE, line, make_run, numbers_in, start_run, wait_for, watching, write_recipe
from weft.commands.stages import open_run
from weft.errors import FolderError, InputError
from weft.recipe.file import read_recipe
from weft.watch.finding import folder_id


def test_a_run_that_was_stopped_and_resumed_ends_bit_for_bit_as_the_unbroken_one(tmp_path: Path):
    recipe, runs = write_recipe(tmp_path), tmp_path / "runs"
    unbroken = tmp_path / "unbroken"
    weft.pretrain(recipe, output=unbroken)
    runs.mkdir()
    with watching(runs, allow_control=True) as watched:
        process = start_run(recipe, runs / "tiny")
        for said in process.stderr:  # until it trains
            if said.startswith("step "):
                break
        id = folder_id("tiny")
        seen = wait_for(lambda: watched.get("/runs").json()["runs"])[0]
        assert (seen["id"], seen["state"], seen["holder"]["process"]) == (id, "running", process.pid)
        stopped = watched.post(f"/runs/{id}/stop", {})
        assert (stopped.status_code, stopped.json()) == (202, {"state": "stopping"})
        watched.post(f"/runs/{id}/stop", {})  # twice is not a second Ctrl-C, which would not save
        process.communicate()
        assert process.returncode == 130
        seen = wait_for(lambda: [one for one in watched.get("/runs").json()["runs"] if one["state"] != "running"])[0]
        assert (seen["state"], seen["problem"]) == ("stopped", None)
        assert 0 < seen["step"] < seen["steps"]
        before = seen["step"]

        resumed = watched.post(f"/runs/{id}/resume", {})
        assert resumed.json() == {"state": "running", "command": f"weft pretrain {runs / 'tiny'} --resume"}
        holder = watched.get(f"/runs/{id}?only=facts").json()["holder"]
        if holder is not None:  # it may have ended already
            psutil.Process(holder["process"]).wait(120)
        last = wait_for(lambda: [one for one in watched.get("/runs").json()["runs"] if one["state"] == "finished"])[0]
        assert last["step"] == last["steps"] > before
        assert last["resume_failure"] is None
        assert watched.get(f"/runs/{id}/report").status_code == 200
        assert "finished" in watched.post(f"/runs/{id}/resume", {}).json()["error"]["message"]
    weights = [(place / "model/model.safetensors").read_bytes() for place in (unbroken, runs / "tiny")]
    assert weights[0] == weights[1]
    assert numbers_in(unbroken) == numbers_in(runs / "tiny")
    assert "Resuming from step" in (runs / "tiny/resume.log").read_text()


def test_a_run_that_cannot_be_resumed_says_why(tmp_path: Path):
    folder = make_run(tmp_path / "runs/tiny", line(1))
    recipe = read_recipe(write_recipe(tmp_path))
    (tmp_path / "book.txt").unlink()
    facts = {"kind": "run", "asked": recipe.given_settings(), "base": str(tmp_path)}
    (folder / "weft.json").write_text(json.dumps(facts))
    with watching(tmp_path / "runs", allow_control=True) as watched:
        refused = watched.post(f"/runs/{folder_id('tiny')}/resume", {})
        assert refused.status_code == 409
        assert "book.txt" in refused.json()["error"]["message"]
        (seen,) = watched.get("/runs").json()["runs"]
        assert "book.txt" in seen["resume_failure"]


def test_a_run_folder_is_resumed_as_it_was_started(tmp_path: Path):
    folder = make_run(tmp_path / "run")
    with pytest.raises(FolderError, match="does not tell where its recipe was"):
        weft.pretrain(folder, resume=True)
    with pytest.raises(InputError, match="without changes"):
        weft.pretrain(folder, ["pretrain.seed=2"], resume=True)
    with pytest.raises(InputError, match="is not a file"):
        weft.pretrain(folder)
    with pytest.raises(FolderError, match="holds no run"):
        weft.finetune(tmp_path, resume=True)


@pytest.mark.parametrize("file", sorted((ALICE.parents[1] / "recipes").rglob("*.yml")), ids=lambda file: file.stem)
def test_a_run_folder_gives_the_recipe_that_it_was_started_with(file: Path, tmp_path: Path):
    asked = read_recipe(file).given_settings()
    facts = {"kind": "run", "asked": json.loads(json.dumps(asked)), "base": str(file.parent)}
    (tmp_path / "weft.json").write_text(json.dumps(facts))
    recipe, base, folder = open_run(tmp_path)
    assert (recipe.given_settings(), base, folder) == (asked, file.parent, tmp_path)
