"""What is chosen by measuring steps."""

import pytest

from weft.train.plan import trial
from weft.train.plan.trial import faster_precision


def choose(monkeypatch, times, *, has_bfloat16=True):
    monkeypatch.setattr(trial, "has_fast_bfloat16", lambda _: has_bfloat16)
    asked = []

    def step_times(precision):
        asked.append(precision)
        return times[precision]

    return faster_precision(step_times, "cpu"), asked


@pytest.mark.parametrize(
    ("bfloat16", "chosen"),
    [
        ([0.7, 0.7], "bfloat16"),
        ([0.9, 0.9], "float32"),  # not clearly faster
        ([1.5, 1.5], "float32"),
        ([5.0, 0.7, 5.0], "bfloat16"),  # somebody else was using the machine
    ],
)
def test_bfloat16_must_be_clearly_faster(monkeypatch, bfloat16, chosen):
    assert choose(monkeypatch, {"float32": [3.0, 1.0], "bfloat16": bfloat16})[0] == chosen


def test_nothing_is_tried_where_there_is_no_bfloat16(monkeypatch):
    assert choose(monkeypatch, {}, has_bfloat16=False) == ("float32", [])
