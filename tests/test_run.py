"""Stages like `make`: skipped when done, continued when stopped, done anew when something changed."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

import small_tasks
from weft.commands.compress_check import check_compression
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


@pytest.fixture
def chain(tmp_path):
    """From labelled rows to a compressed classifier."""
    for name, count in (("train", 60), ("test", 30)):
        rows = [f"{'good' if i % 2 else 'bad'} day number {i},{i % 2}" for i in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    small = {"family": "bert", "layers": 2, "width": 32, "heads": 2}
    tree = {
        "finetune": {
            "task": "classify",
            "model": small,
            "data": {"train": "train.csv", "test": "test.csv"},
            "budget": "3 steps",
            "baseline": False,
        },
        "distil": {"student": {"layers": 1}, "budget": "2 steps", "yardsticks": False, "augment": False},
        "prune": {"inner": 0.5},
        "quantize": {"bits": 8},
        "compare": {"rounds": 1},
    }
    (tmp_path / "chain.yml").write_text(yaml.safe_dump(tree))
    return tmp_path / "chain.yml"


def test_a_chain_ends_with_a_card_over_all_of_its_models(chain, tmp_path, capsys):
    run = tmp_path / "run"
    results = run_recipe(read_recipe(chain), tmp_path, run)
    places = [run, run / "distil", run / "prune", run / "quantize"]
    assert [Path(model) for model in results["models"]] == [place / "model" for place in places]
    card = json.loads((run / "card/card.json").read_text())
    assert [model["name"] for model in card["models"]] == ["run", "distil", "prune", "quantize"]
    assert [model["steps"] for model in card["models"]][1:] == [
        ["distil"],
        ["distil", "prune"],
        ["distil", "prune", "int8"],
    ]
    assert card["verdict"] == results["verdict"] and card["count"] == 30
    sizes = [model["parameters"] for model in card["models"]]
    assert sizes[0] > sizes[1] > sizes[2] == sizes[3]
    assert json.loads((run / "quantize/model/weft.json").read_text())["card"]["verdict"] == results["verdict"]
    capsys.readouterr()

    assert run_recipe(read_recipe(chain), tmp_path, run) == results
    assert capsys.readouterr().err.count("up to date") == 5

    run_recipe(read_recipe(chain, ["prune.inner=0.25"]), tmp_path, run)
    said = capsys.readouterr().err
    assert "finetune: up to date" in said and "distil: up to date" in said
    assert "prune: out of date" in said and "quantize: out of date" in said and "card: up to date" not in said
    assert (run / "prune.before-1").is_dir() and (run / "quantize.before-1").is_dir()


def test_a_stage_that_was_stopped_is_done_again_from_the_model_before(chain, tmp_path, monkeypatch, capsys):
    def stop(*arguments, **settings):
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("weft.commands.quantize.quantize_model", stop)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(read_recipe(chain, ["distil=null", "prune=null"]), tmp_path, run)
    assert not (run / "quantize/model").exists()
    results = run_recipe(read_recipe(chain, ["distil=null", "prune=null"]), tmp_path, run)
    assert "finetune: up to date" in capsys.readouterr().err
    assert Path(results["model"]) == run / "quantize/model" and "smaller" in results["verdict"]


def test_a_recipe_may_begin_with_a_model_that_is_there(chain, tmp_path):
    trained = run_recipe(read_recipe(chain, ["distil=null", "prune=null", "quantize=null"]), tmp_path, tmp_path / "run")
    tree = {"prune": {"model": trained["model"], "layers": 1, "data": "train.csv"}}
    (tmp_path / "prune.yml").write_text(yaml.safe_dump(tree))
    results = run_recipe(read_recipe(tmp_path / "prune.yml"), tmp_path, tmp_path / "small")
    assert results["models"] == [trained["model"], str(tmp_path / "small/prune/model")]
    assert "card" not in results  # no test data

    shutil.copytree(trained["model"], tmp_path / "alone")  # away from its run, which names the data
    (tmp_path / "prune.yml").write_text(yaml.safe_dump({"prune": {"model": "alone", "layers": 1}}))
    with pytest.raises(InputError, match=r"Give some data with prune\.data"):
        run_recipe(read_recipe(tmp_path / "prune.yml"), tmp_path, tmp_path / "other")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["prune.speedup=banana"], "prune: .*banana"),
        (["prune.speed=2x"], "prune.speed is not a setting"),
        (["quantize.tune=banana"], "quantize.tune"),
        (["quantize.bits=3"], "quantize.bits"),
        (["quantize.group=16"], "group and unpacked go with bits: 4"),
        (["prune={minutes: 1}"], "say what to prune"),
        (["finetune=null"], "distil.teacher is missing"),
        (["finetune=null", "distil=null"], "prune.model is missing"),
        (["prune.data=nowhere.csv"], "prune.data: .*nowhere.csv does not exist"),
        (["compare.data=nowhere.csv"], "compare.data: .*nowhere.csv does not exist"),
        (["finetune.data.train=nowhere.csv"], "finetune.data.train: .*nowhere.csv does not exist"),
        (["distil.teacher=nowhere"], "distil.teacher: .*nowhere does not exist"),
        (["distil.student=nowhere"], "distil.student: .*nowhere does not exist"),
        (["distil.data={train: nowhere.csv}"], "distil.data.train: .*nowhere.csv does not exist"),
        (["distil.augment={model: nowhere}"], "distil.augment.model: .*nowhere does not exist"),
        (["distil.cache=train.csv"], "distil.cache .*train.csv is a file"),
        (["distil.method=minilm"], "distil.method minilm is for plain text"),
        (["distil.student={layers: 9}"], "distil.student.layers is 9, the teacher's 2"),
        (["distil.student={width: 24, heads: 5}"], "distil.student: bert: width 24 is not a multiple of 5 heads"),
        (["distil.student={family: nobert}"], "no model family 'nobert'"),
        (["prune={inner: 0.5, keep_tokens: 5}"], "prune: keep_tokens goes with vocabulary"),
        (["prune={vocabulary: train.csv, minutes: 5}"], "prune: minutes recovers what layers"),
        (["prune={layers: 2}"], "prune.layers is 2, more than there are: the model has 1"),
        (["distil=null", "prune={layers: 3}"], "prune.layers is 3, more than there are: the model has 2"),
        (["prune={inner: 129}"], "prune.inner is 129, more than there are: a layer has 128"),
        (["quantize={bits: 4, group: 9}"], "quantize.group cannot be 9"),
        (["finetune.model.family=lstm", "finetune.model.heads=null"], "The teacher is an LSTM"),
        (["finetune.model.family=lstm", "finetune.model.heads=null", "distil=null"], "prune: the cells of an LSTM"),
    ],
)
def test_what_is_wrong_with_a_chain_is_said_before_any_training(chain, tmp_path, changes, words):
    with pytest.raises(RecipeError, match=words):
        run_recipe(read_recipe(chain, changes), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_recipe_leaves_open_is_not_held_against_it(chain, recipe, tmp_path):
    inherited = read_recipe(chain, ["distil.method=tinybert"])  # needs data: that of finetune
    check_compression(inherited, tmp_path, tmp_path / "run")
    without_masked_model = read_recipe(chain, ["distil.augment={copies: 2}"])
    check_compression(without_masked_model, tmp_path, tmp_path / "run")
    sized_by_budget = read_recipe(recipe, ["model={family: gpt2}", "prune={layers: 99}"])
    check_compression(sized_by_budget, tmp_path, tmp_path / "run")
    with pytest.raises(RecipeError, match="the model has 1"):
        check_compression(read_recipe(recipe, ["prune={layers: 99}"]), tmp_path, tmp_path / "run")


def test_a_teacher_that_is_there_is_checked_as_a_whole_before_any_training(chain, tmp_path):
    alone = ["distil=null", "prune=null", "quantize=null"]
    trained = run_recipe(read_recipe(chain, alone), tmp_path, tmp_path / "run")
    named = [f"distil.teacher={trained['model']}", "distil.student={heads: 7}"]
    with pytest.raises(RecipeError, match="not a multiple of 7 heads"):
        run_recipe(read_recipe(chain, named), tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_stage_and_the_card_read_the_data_as_the_recipe_says(chain, tmp_path):
    for name in ("train", "test"):
        text = (tmp_path / f"{name}.csv").read_text().replace("day", "journée")
        (tmp_path / f"{name}.dat").write_bytes(text.encode("latin-1"))
    data = "finetune.data={train: train.dat, test: test.dat, format: csv, encoding: latin-1}"
    results = run_recipe(read_recipe(chain, [data]), tmp_path, tmp_path / "run")
    assert json.loads((tmp_path / "run/card/card.json").read_text())["count"] == 30
    said = small_tasks.weft("evaluate", results["model"], tmp_path / "test.dat", "--encoding", "utf-8")
    assert "not UTF-8" in said.sentence
