"""Stages like `make`: skipped when done, continued when stopped, done anew when something changed."""

import sys
from pathlib import Path

import pytest
import yaml

from weft.commands.run import run_recipe
from weft.errors import FolderError, InputError, RecipeError
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain
from weft.train.run_folder import locked_run

ALICE = Path(__file__).parents[1] / "examples/alice.txt"


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "book.txt").write_text(ALICE.read_text("utf-8")[:20_000])
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}]},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 1},
        "pretrain": {"budget": "3 steps", "sequence_length": 16, "batch_tokens": 64},
    }
    (tmp_path / "r.yml").write_text(yaml.safe_dump(tree))
    return tmp_path / "r.yml"


def test_what_is_done_is_skipped_and_what_changed_is_done_anew(recipe, tmp_path, capsys):
    first = run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    stamp = (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns
    assert run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run") == first
    assert (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns == stamp
    assert "up to date" in capsys.readouterr().err

    run_recipe(read_recipe(recipe, ["pretrain.seed=5"]), tmp_path, tmp_path / "run")
    assert (tmp_path / "run.before-1/model/model.safetensors").stat().st_mtime_ns == stamp
    (tmp_path / "book.txt").write_text("Another book altogether. " * 1000)
    run_recipe(read_recipe(recipe, ["pretrain.seed=5"]), tmp_path, tmp_path / "run")
    assert (tmp_path / "run.before-2/model").is_dir()
    assert "out of date" in capsys.readouterr().err


def test_what_pretrain_has_done_is_done(recipe, tmp_path, capsys):
    pretrain(read_recipe(recipe), tmp_path, tmp_path / "run")
    run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    assert "up to date" in capsys.readouterr().err


def test_a_recipe_that_cannot_be_moves_nothing(recipe, tmp_path):
    run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    for slip in ("pretrain.budget=banana", "model.heads=3", "corpus.sources=[{path: nowhere}]"):
        with pytest.raises(InputError):
            run_recipe(read_recipe(recipe, [slip]), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run.before-1").exists()


def test_what_tuning_lacks_is_missed_before_anything_is_pretrained(recipe, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("text,label\ngood,1\nbad,0\n" * 5)
    both = ["finetune.task=classify", "finetune.data.train=rows.csv"]
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="sklearn is needed"):
        run_recipe(read_recipe(recipe, both), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_muon_has_pretrained_is_tuned_with_muon(recipe, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\ngood,1\nbad,0\n" * 5)
    both = ["finetune.task=classify", "finetune.data.train=rows.csv", "finetune.baseline=false"]
    both += ["finetune.budget=1 steps", "finetune.matrix_rate=0.03"]
    run_recipe(read_recipe(recipe, both), tmp_path, tmp_path / "run")
    plan = read_recipe(tmp_path / "run/finetune/recipe.yml").finetune
    assert (plan.optimizer, plan.matrix_rate) == ("muon", 0.03)
    run_recipe(read_recipe(recipe, [*both[:-1], "pretrain.optimizer=adamw"]), tmp_path, tmp_path / "other")
    assert read_recipe(tmp_path / "other/finetune/recipe.yml").finetune.optimizer == "adamw"


def test_a_damaged_model_is_written_again(recipe, tmp_path):
    run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    weights = tmp_path / "run/model/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-4])
    run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    assert weights.read_bytes() == before


def test_a_folder_that_a_run_is_at_work_in_is_not_moved_away(recipe, tmp_path):
    run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
    with locked_run(tmp_path / "run"), pytest.raises(FolderError, match="in use by another run"):
        run_recipe(read_recipe(recipe, ["pretrain.seed=5"]), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run.before-1").exists()


def test_a_recipe_without_stages_is_refused(recipe, tmp_path):
    recipe.write_text("name: nothing\nmodel: {family: bert}\n")
    with pytest.raises(RecipeError, match="no stage to run"):
        run_recipe(read_recipe(recipe), tmp_path, tmp_path / "run")
