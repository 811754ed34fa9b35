"""Progress of predictions, evaluation and validation counts rows, not chunks."""

import re

import numpy as np
import pytest

from small_tasks import finetune, rows_of, weft, without_gold, write_rows
from weft import progress
from weft.tasks.batches import groups, tracked_groups
from weft.tasks.example import Input

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def every_update_is_a_line(monkeypatch):
    monkeypatch.setattr(progress, "_LOG_SECONDS", (0.0, 0.0))


def test_groups_are_the_same_with_progress(capsys):
    inputs = [Input(number, np.arange(3 + number % 5)) for number in range(40)]
    assert list(tracked_groups(inputs, "Validating", "texts")) == list(groups(inputs))
    assert "Validating: 100%, 40 texts" in capsys.readouterr().err
    windows = [Input(number // 2, np.arange(3)) for number in range(40)]
    list(tracked_groups(windows, "Validating", "texts"))
    assert "Validating: 100%, 40 windows" in capsys.readouterr().err


@pytest.mark.parametrize(("task", "unit"), [("classify", "texts"), ("tag", "sentences"), ("summarize", "texts")])
def test_rows_are_counted(task, unit, tmp_path):
    said = finetune(tmp_path, task)
    assert re.search(rf"Validating: 100%, 4 {unit}", said.err) and re.search(rf"Predicting: .*4 {unit}", said.err)
    file = write_rows(tmp_path / "rows.jsonl", [without_gold(row) for row in rows_of(task, 7)])
    said = weft("predict", tmp_path / "run/model", "--file", file)
    assert re.search(r"Predicting: .*7 rows", said.err) and "chunks" not in said.err
