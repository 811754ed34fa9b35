"""Where `prune`, `quantize`, `distil` and `compare` write: what cannot be is said before the work."""

from pathlib import Path

import pytest
from distilling import write_distil

from random_models import make_random
from small_tasks import weft as run
from small_tasks import write_rows
from task_models import make, save
from weft.compress.card.card import Card
from weft.errors import FolderError
from weft.folders import check_writable
from weft.tasks.classify import Classify


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place") / "model"
    make_random("bert").save(folder)
    return folder


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("weft.api.model.load", stop)
    monkeypatch.setattr("weft.compress.card.compare.compare_models", stop)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", ["prune", "quantize", "compare"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(command: str, model: Path, tmp_path: Path):
    """Below a file no folder can be made, by root neither."""
    (tmp_path / "file").write_text("")
    given = {"prune": [model, "layers=1"], "quantize": [model], "compare": [model, model, "--data", tmp_path / "file"]}
    sentence = run(command, *given[command], "-o", tmp_path / "file/x").sentence
    assert "file" in sentence and "cannot be written" in sentence


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(("where", "how"), [(".", "is"), ("inside/it", "is inside"), ("..", "contains")])
def test_one_sentence_keeps_all_commands_from_the_source(where: str, how: str, model: Path, tmp_path: Path):
    (model.parent / "config.json").write_text("{}")  # so that the folder above is taken for a model's
    recipes = [
        write_distil(tmp_path / "a", model, "classify"),
        write_distil(tmp_path / "b", tmp_path / "other", "classify", student=str(model)),
    ]
    for arguments in (["prune", model, "layers=1"], ["quantize", model], *(["distil", recipe] for recipe in recipes)):
        sentence = run(*arguments, "-o", model / where).sentence
        assert f" {how} the model {model}. Choose a folder elsewhere." in sentence, arguments
    assert not (model / "inside").exists()


def test_a_card_is_shown_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(card: Card, folder: Path) -> None:
        raise FolderError(f"No space left on the disk while writing {folder}.")

    task = Classify(("bad", "good"))
    model = save(task, *make(task, "bert"), tmp_path / "model")
    rows = write_rows(tmp_path / "t.jsonl", [{"text": f"text {n}", "label": ("bad", "good")[n % 2]} for n in range(20)])
    monkeypatch.setattr(Card, "write", full)
    said = run("compare", model, model, "--data", rows, "--rounds", "1", "-o", tmp_path / "card")
    assert said.code == 2 and "No space left" in said.err
    assert "accuracy" in said.out


def test_probing_a_place_leaves_nothing(tmp_path: Path):
    check_writable(tmp_path / "a/b")
    assert list(tmp_path.iterdir()) == []
