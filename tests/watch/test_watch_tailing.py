"""A file that grows, is cut or replaced is read piece by piece, and always as if it were read whole."""

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watching import line
from weft.watch import curves as curves_module
from weft.watch import line_tail as line_tail_module
from weft.watch.curves import MOST_METRIC_ROWS, RunCurves, projected
from weft.watch.line_tail import LONGEST_LINE, LineTail
from weft.watch.log_lines import LogGlance, ShareCurve, log_end

GARBAGE = [
    b"{",
    b"null",
    b"[1]",
    b'"step"',
    b'{"loss": 1}',
    b'{"step": "x"}',
    b'{"step": NaN}',
    b'{"step": -1}',
    b"\xff\xfe",
]
GARBAGE += [
    b'{"step": true}',
    b"[" * 3000,
    b'{"step": 1e999}',
    b"\0\0\0",
    b'{"step": 99999999999999999999}',
    b'{"a":{',
    b"}}",
]


def whole(data: bytes) -> dict[str, Any]:
    """The oracle: what a file holds, read at once, where a step that was there before replaces what followed it."""
    rows: list[dict[str, Any]] = []
    bad = 0
    for text in data.split(b"\n")[:-1]:
        try:
            row = json.loads(text.decode("utf-8", "replace"))
            step = row["step"]
            good = isinstance(step, int | float) and not isinstance(step, bool) and 0 <= step < 10**15
        except (ValueError, TypeError, KeyError, RecursionError):
            good = False
        if not good:
            bad += bool(text.strip())
            continue
        rows = [one for one in rows if one["step"] < step]
        rows.append(row)
    return {"rows": rows, "bad": bad}


def check(found: RunCurves, data: bytes) -> None:
    expected = whole(data)
    assert found.is_complete
    assert found.bad_lines == expected["bad"]
    for key in ("loss", "lr", "validation_loss"):
        rows = [row for row in expected["rows"] if isinstance(row.get(key), int | float)]
        x, y = found.points(key, "step")
        assert x.tolist() == [row["step"] for row in rows]
        assert y == pytest.approx([row[key] for row in rows], rel=1e-6)
    assert [one.step for one in found.samples] == [row["step"] for row in expected["rows"] if "sample" in row]


lines = st.one_of(
    st.builds(
        lambda step, loss, more: line(step, loss, **more).encode(),
        st.integers(1, 40),
        st.floats(0.5, 10),
        st.sampled_from(
            [{}, {"validation_loss": 2.5}, {"sample": "Once\nupon"}, {"validation_loss": 2.0, "sample": "x"}]
        ),
    ),
    st.sampled_from(GARBAGE).map(lambda text: text + b"\n"),
)
changes = st.one_of(
    st.tuples(st.just("append"), st.lists(lines, max_size=12).map(b"".join)),
    st.tuples(
        st.just("half"), st.tuples(lines, st.floats(0, 1)).map(lambda given: given[0][: int(len(given[0]) * given[1])])
    ),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("replace"), st.lists(lines, max_size=20).map(b"".join)),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(changes, st.booleans()), min_size=1, max_size=12), st.sampled_from([64, 300, 1 << 18]))
def test_a_file_is_read_in_pieces_as_it_is_read_whole(tmp_path_factory, steps, piece):
    """Appended, with a half-written last line, cut, or replaced as a resumed run does it."""
    folder = tmp_path_factory.mktemp("run")
    file, before = folder / "metrics.jsonl", line_tail_module._BLOCK
    found, data = RunCurves(folder), b""
    line_tail_module._BLOCK = piece
    try:
        for (what, given_value), is_seen in steps:
            if what in ("append", "half"):
                data += given_value
                with file.open("ab") as stream:
                    stream.write(given_value)
            elif what == "cut":
                data = data[: int(len(data) * given_value)]
                if file.exists():
                    os.truncate(file, len(data))
            else:
                data = given_value
                (folder / "new").write_bytes(data)
                (folder / "new").replace(file)
            if is_seen:
                found.advance(1 << 40)
                check(found, data)
    finally:
        line_tail_module._BLOCK = before


def test_lines_that_are_too_long_are_counted_and_passed_over(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    huge = json.dumps({"step": 2, "sample": "x" * (3 * LONGEST_LINE)}).encode()
    file.write_bytes(line(1).encode() + huge[: len(huge) // 2])
    found = RunCurves(tmp_path)
    found.advance(1 << 40)
    assert found.rows == 1
    with file.open("ab") as stream:
        stream.write(huge[len(huge) // 2 :] + b"\n" + line(3).encode())
    found.advance(1 << 40)
    assert found.points("loss", "step")[0].tolist() == [1, 3]
    assert found.tail.long_lines == 1
    assert found.memory < 1_000_000


def test_an_idle_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "metrics.jsonl").write_text(line(1) + line(2))
    tail = LineTail(tmp_path / "metrics.jsonl")
    assert len(tail.read()[0]) == 2
    monkeypatch.setattr("weft.watch.line_tail.open_plain", lambda path: pytest.fail("it was opened"))
    assert tail.read() == ([], True)


def test_a_file_written_anew_in_its_place_is_noticed(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(1, 1.0) + line(2, 1.0))
    found = RunCurves(tmp_path)
    found.advance()
    file.write_text(line(1, 5.0) + line(2, 6.0) + line(3, 7.0))  # the same inode, and longer
    found.advance()
    assert found.points("loss", "step")[1].tolist() == [5.0, 6.0, 7.0]


def test_memory_is_bounded_and_extremes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(curves_module, "MOST_METRIC_ROWS", 1000)
    assert MOST_METRIC_ROWS > 100_000
    chance = random.Random(1)
    losses = [chance.random() for _ in range(5000)]
    losses[1234], losses[4321] = 99.0, -99.0
    (tmp_path / "metrics.jsonl").write_text("".join(line(step + 1, loss) for step, loss in enumerate(losses)))
    found = RunCurves(tmp_path)
    found.advance(1 << 40)
    x, y = found.points("loss", "step")
    assert found.is_thinned
    assert found.rows <= 1600
    assert y.max() == 99.0
    assert y.min() == -99.0
    assert (np.diff(x) > 0).all()
    assert x[y.argmax()] == 1235


def test_too_many_keys_and_samples_are_bounded(tmp_path: Path):
    rows = [{f"key{step}x{number}": 1 for number in range(20)} | {"sample": "y" * 50_000} for step in range(300)]
    (tmp_path / "metrics.jsonl").write_text("".join(line(step + 1, 1.0, **row) for step, row in enumerate(rows)))
    found = RunCurves(tmp_path)
    found.advance(1 << 40)
    assert len(found.keys) <= 70
    assert len(found.samples) <= 101
    assert found.samples[0].step == 1
    assert found.samples[-1].step == 300
    assert all(len(one.text) <= 4001 for one in found.samples)


def test_seconds_and_tokens_need_not_rise(tmp_path: Path):
    rows = [{"step": 1, "loss": 1, "seconds": 9}, {"step": 2, "loss": 2, "seconds": 3}, {"step": 3, "loss": 3}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = RunCurves(tmp_path)
    found.advance()
    assert [one.tolist() for one in found.points("loss", "seconds")] == [[3, 9], [2, 1]]
    assert found.points("loss", "tokens")[0].tolist() == []


def test_the_log_tells_the_share_of_the_peak_and_the_plan(tmp_path: Path):
    first = "2026-01-01 10:00:00 step {:,}/1,000  loss 3.0000  12,345 tokens/s  {}% of the matmul peak  0:10 left\n"
    text = "2026-01-01 10:00:00 kernels in use\n" + "".join(first.format(step, 30 + step) for step in (1, 2, 3, 4))
    # Resumed at step 2, with more steps; then a sample that looks like a line of the log.
    text += (
        first.format(3, 50).replace("/1,000", "/1,200") + "2026 step 9/9  loss 1  99% of the matmul peak  0:00 left\n"
    )
    (tmp_path / "train.log").write_text(text)
    curve, glance = ShareCurve(tmp_path), LogGlance(tmp_path)
    curve.advance()
    assert [one.tolist() for one in curve.points()] == [[1, 2, 3], [0.31, 0.32, 0.5]]
    assert glance.look()
    assert (glance.share, glance.steps_at_first, glance.steps) == (0.5, 1000, 1200)
    assert not glance.look()
    assert log_end(tmp_path, 2)[1]


def test_the_log_tells_why_a_run_diverged(tmp_path: Path):
    text = "2026-01-01 10:00:00 step 5/9  loss 3.0000  1 tokens/s  0:10 left\n"
    text += (
        "2026-01-01 10:00:01 At step 6 the loss is nan and the gradient norm nan: training has diverged. Try less.\n"
    )
    (tmp_path / "train.log").write_text(text)
    glance = LogGlance(tmp_path)
    glance.look()
    assert glance.diverged.startswith("At step 6 the loss is nan")


def test_a_power_law_is_continued():
    x = np.arange(1, 30) * 1000.0
    assert projected(x, 5 * x**-0.1, 1e6) == pytest.approx(5 * 1e6**-0.1)
    assert projected(x, np.full(29, 3.0) + np.arange(29), 1e6) is None  # it rises
    assert projected(x[:3], x[:3], 1e6) is None
