"""Curves are thinned so that means are right and extremes survive; what is new continues what was sent."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watching import line, make_run
from weft.errors import InputError
from weft.watch.buckets import bucket_of, bucket_width, bucketed, rounded_values
from weft.watch.watcher import CurveQuery, RunWatcher

curves = st.lists(
    st.tuples(st.integers(1, 500), st.floats(-1e6, 1e6)), min_size=1, max_size=200, unique_by=lambda p: p[0]
)


@given(curves, st.sampled_from([1, 2, 5, 7, 50, 1000]))
def test_every_bucket_has_its_mean_and_its_extremes_in_order(points, width):
    points = sorted(points)
    x, y = (np.array(column, float) for column in zip(*points, strict=True))
    last = int(bucket_of(x[-1:], width)[0])
    found = bucketed(x, y, width, 0, last)
    assert len(found.mean) == last + 1
    for bucket in range(last + 1):
        inside = [value for at, value in points if bucket * width < at <= (bucket + 1) * width]
        if not inside:
            assert found.mean[bucket] is None
            continue
        assert found.mean[bucket] == pytest.approx(np.mean(inside), rel=1e-4, abs=1e-6 * np.abs(inside).max() + 1e-250)
        if found.ends is not None:
            pair = found.ends[2 * bucket : 2 * bucket + 2]
            assert sorted(pair) == pytest.approx([min(inside), max(inside)], rel=1e-5, abs=1e-250)
            is_rising = inside.index(min(inside)) <= inside.index(max(inside))
            assert (pair[0] <= pair[1]) == is_rising or pair[0] == pair[1]
    assert (found.ends is None) == (len(set(bucket_of(x, width).tolist())) == len(points))


@given(st.floats(1e-3, 1e12), st.integers(10, 4000), st.booleans())
def test_widths_are_round_and_no_wider_than_needed(extent, points, whole):
    width = bucket_width(extent, points, whole=whole)
    assert width * points >= extent * 0.999
    assert str(f"{width:.10e}")[0] in "125"
    assert width == 1 or width / 2.5 * points < extent * 1.001
    assert not whole or width == int(width)


@given(st.floats(-1e200, 1e200))
def test_six_digits_are_kept(value):
    assert rounded_values(np.array([value]))[0] == pytest.approx(value, rel=1e-5, abs=1e-250)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.sampled_from([1, 10, 37]))
def test_what_is_new_continues_what_was_sent(tmp_path_factory, growth, width):
    """Answers with a cursor, put together as the page does it, are the answer without one."""
    root = tmp_path_factory.mktemp("runs")
    folder = make_run(root / "run")
    watcher, cursor, joined, step = RunWatcher(root), None, {}, 0
    (id,) = watcher.listing()["ids"]
    for count in growth:
        with (folder / "metrics.jsonl").open("a") as file:
            for step in range(step + 1, step + count + 1):  # noqa: B020
                more = {"validation_loss": float(step)} if step % 5 == 0 else {}
                file.write(line(step, 100 / step, **more))
        keys = ["loss", "validation_loss"]
        told = watcher.curves(id, CurveQuery(keys, width=width, since=cursor))
        cursor = told["cursor"]
        for key in keys:
            before = joined.get(key, []) if not told["is_new"] else []
            added = told["series"][key]["mean"]
            kept = before[: told["first"]]
            joined[key] = kept + [None] * (told["first"] - len(kept)) + added if added else before
        fresh = watcher.curves(id, CurveQuery(keys, width=width))
        assert joined == {key: fresh["series"][key]["mean"] for key in keys}


def test_a_cursor_of_rows_that_are_gone_starts_again(tmp_path: Path):
    folder = make_run(tmp_path / "run", "".join(line(step) for step in range(1, 21)))
    watcher = RunWatcher(tmp_path)
    (id,) = watcher.listing()["ids"]
    first = watcher.curves(id, CurveQuery(["loss"], width=1))
    again = watcher.curves(id, CurveQuery(["loss"], width=1, since=first["cursor"]))
    assert (again["is_new"], again["first"], len(again["series"]["loss"]["mean"])) == (False, 19, 1)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line(5, 9.0))  # resumed: steps step back
    later = watcher.curves(id, CurveQuery(["loss"], width=1, since=first["cursor"]))
    assert (later["is_new"], len(later["series"]["loss"]["mean"])) == (True, 5)
    for cursor in ("", "x", "0-0_1_step_", f"{first['cursor']}0", "0-0_2_step_19", "9" * 200, "0-0_1_step_²"):
        assert watcher.curves(id, CurveQuery(["loss"], width=1, since=cursor))["is_new"]


def test_a_spike_of_one_step_is_sent_at_any_resolution(tmp_path: Path):
    rows = [line(step, 50.0 if step == 7_777 else 3.0) for step in range(1, 20_001)]
    make_run(tmp_path / "run", "".join(rows))
    watcher = RunWatcher(tmp_path)
    (id,) = watcher.listing()["ids"]
    for points in (10, 100, 1000):
        told = watcher.curves(id, CurveQuery(["loss"], points=points))
        assert max(value for value in told["series"]["loss"]["ends"] if value is not None) == 50.0
        assert len(told["series"]["loss"]["mean"]) <= points
    near = watcher.curves(id, CurveQuery(["loss"], width=1, begin=7_770, end=7_780))
    assert near["first"] == 7_769
    assert near["series"]["loss"]["mean"][7] == 50.0
    with pytest.raises(InputError, match="buckets"):
        watcher.curves(id, CurveQuery(["loss"], width=0.001))


def test_the_share_of_the_peak_is_a_curve_over_any_axis(tmp_path: Path):
    folder = make_run(tmp_path / "run", "".join(line(step) for step in range(1, 11)))
    text = "2026-01-01 10:00:00 step {}/10  loss 3.0000  12,345 tokens/s  {}% of the matmul peak  0:10 left\n"
    (folder / "train.log").write_text("".join(text.format(step, step) for step in range(1, 11)))
    watcher = RunWatcher(tmp_path)
    (id,) = watcher.listing()["ids"]
    for x, width in (("step", 1), ("tokens", 64), ("seconds", 0.1)):
        told = watcher.curves(id, CurveQuery(["share_of_peak"], x=x, width=width))
        assert told["series"]["share_of_peak"]["mean"] == [step / 100 for step in range(1, 11)]
        assert json.dumps(told, allow_nan=False)
