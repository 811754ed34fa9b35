"""`--precision`: the command answers as the model that `weft.load` gives with the same precision."""

import json
import sys

import pytest

import weft
from task_models import TEXTS, make, save
from weft.cli import main
from weft.inference.forward_trials import load_forward_kernels
from weft.tasks.classify import Classify

pytestmark = pytest.mark.skipif(load_forward_kernels() is None, reason="no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    task = Classify(("bad", "good", "odd"))
    return save(task, *make(task, "bert"), tmp_path_factory.mktemp("models") / "classifier")


def command(monkeypatch, capsys, *arguments):
    """Exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["weft", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_predict_computes_in_the_precision_that_is_asked_for(precision, folder, monkeypatch, capsys):
    if precision == "bf16" and not load_forward_kernels().has_bfloat():
        pytest.skip("no bf16 products here")
    code, out, _ = command(
        monkeypatch, capsys, "predict", folder, *TEXTS, "--details", "--json", "--precision", precision
    )
    assert code == 0
    answers = json.loads(out)["answers"]
    wanted = weft.load(folder, precision=precision).predict(TEXTS, details=True)
    assert answers == json.loads(json.dumps(wanted))


def test_the_precisions_differ(folder):
    """Otherwise the test above would not notice an option that is ignored."""
    scores = [str(weft.load(folder, precision=name).predict(TEXTS, details=True)) for name in ("fp32", "int8")]
    assert scores[0] != scores[1]


def test_auto_says_what_it_chose(folder, monkeypatch, capsys):
    code, _, said = command(monkeypatch, capsys, "predict", folder, "So she sat on.", "--precision", "auto")
    assert code == 0
    assert ("precision: " in said) == load_forward_kernels().has_bfloat()


def test_an_unknown_precision_is_a_sentence(folder, monkeypatch, capsys):
    code, _, said = command(monkeypatch, capsys, "predict", folder, "So she sat on.", "--precision", "int3")
    assert code == 2
    assert "int3" in said and "int8" in said and "Traceback" not in said


def test_a_quantized_model_has_its_precision(folder, tmp_path, monkeypatch, capsys):
    weft.quantize(folder, tmp_path / "small")
    code, _, said = command(monkeypatch, capsys, "predict", tmp_path / "small", "So she sat on.", "--precision", "bf16")
    assert code == 2
    assert "stored in int8" in said
