import os
from pathlib import Path

import pytest

from weft.corpus.engine import work_on
from weft.errors import InputError


@pytest.fixture(autouse=True)
def _found_by_workers(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def double(piece):
    if piece["number"] == 13:
        raise InputError("13 cannot be doubled.")
    return {"number": 2 * piece["number"], "process": os.getpid()}


def test_figures_come_in_the_order_of_the_pieces_from_several_processes():
    found = list(work_on([{"number": number} for number in range(12)], double, workers=2))
    assert [figures["number"] for figures in found] == [2 * number for number in range(12)]
    assert os.getpid() not in {figures["process"] for figures in found}


def test_a_users_mistake_is_raised_as_it_was_there():
    with pytest.raises(InputError, match="13 cannot be doubled"):
        list(work_on([{"number": 1}, {"number": 13}], double, workers=2))


def test_no_pieces_no_work():
    assert list(work_on([], double)) == []
