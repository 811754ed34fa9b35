"""Stored loss curves of four tiny runs: a change that moves them is intended, or a mistake.

`PYTHONPATH=scripts python tests/train/test_golden.py` rewrites them. The tolerance allows only other CPUs' rounding.
The runs have no dropout, because its mask differs with and without a C compiler, and a moderate learning rate, at which
rounding differences do not grow.
"""

import json
import tempfile
from pathlib import Path

import pytest

from kill_test import RECIPES, write_recipe
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain
from weft.train.training_log import read_metrics

GOLDEN = Path(__file__).parent / "golden.json"


def curve(family, place):
    settings = ["pretrain.dropout=0", "pretrain.learning_rate=0.001", "pretrain.precision=float32"]
    recipe = read_recipe(write_recipe(family, place, steps=12), settings)
    pretrain(recipe, place, place / "run")
    return [round(line["loss"], 4) for line in read_metrics(place / "run")]


@pytest.mark.parametrize("family", RECIPES)
def test_the_loss_curve_is_the_stored_one(family, tmp_path):
    assert curve(family, tmp_path) == pytest.approx(json.loads(GOLDEN.read_text())[family], abs=2e-3)


if __name__ == "__main__":
    curves = {}
    for name in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            curves[name] = curve(name, Path(folder))
    GOLDEN.write_text(json.dumps(curves, indent=1) + "\n")
