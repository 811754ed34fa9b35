"""Text that the tokenizer does not know: a masked model has nothing to predict, which must not look like a success."""

from pathlib import Path

import pytest

import weft
from small_tasks import weft as run
from task_models import ALICE, tokenizer_of
from weft.compress.calibration_data import text_samples
from weft.errors import InputError
from weft.train.validation import validate

UNKNOWN = "爱丽丝开始觉得无聊。\n"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unknown") / "model"
    weft.create("bert", tokenizer=tokenizer_of("bert"), layers=2, width=32, heads=2, positions=64).save(folder)
    return folder


@pytest.fixture(scope="module")
def text(bert: Path) -> Path:
    file = bert.parent / "zh.txt"
    file.write_text(UNKNOWN * 500, "utf-8")
    return file


def test_no_command_measures_on_it(bert: Path, text: Path, tmp_path: Path):
    for command in (("quantize", bert, "-o", tmp_path / "o"), ("prune", bert, "layers=1", "-o", tmp_path / "o")):
        assert "tokens of zh.txt can be predicted" in run(*command, "--data", text).sentence
    assert "No token of zh.txt can be predicted" in run("compare", bert, bert, "--data", text).sentence


def test_validation_names_the_reason(bert: Path, text: Path, tmp_path: Path):
    model = weft.load(bert)
    batch = text_samples(model, [text], tmp_path, 10**6).objective.batch([0, 1], [0, 0], 0)
    with pytest.raises(InputError, match="tokenizer does not know this text"):
        validate(model.network, [batch])


def test_text_that_is_partly_known_is_enough(bert: Path, tmp_path: Path):
    """Most batches have nothing to predict, and their heads read nothing."""
    mixed = tmp_path / "mixed.txt"
    mixed.write_text(UNKNOWN * 3000 + ALICE.read_text("utf-8")[:20000], "utf-8")
    assert weft.quantize(bert, tmp_path / "o", data=mixed)["divergence"] < 0.05
