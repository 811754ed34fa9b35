"""Progress in its three forms, with a clock of our own."""

import io
import sys

import pytest

from weft import progress
from weft.progress import Gauge, duration, rate_of, track
from weft.train import training_log


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


NotebookStream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def shown(text: str) -> list[str]:
    """What a reader sees: a carriage return starts the line again and characters are overwritten one by one."""
    lines = []
    for line in text.split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return [line for line in lines if line]


@pytest.mark.parametrize(("count", "seconds", "text"), [
    (0, 3.0, "no rows yet"), (5000, 2.0, "2,500 rows/s"), (3, 2.0, "1.5 rows/s"), (1, 8.0, "8.0 s each"),
    (2, 300.0, "2 min 30 s each"),
])  # fmt: skip
def test_a_rate_below_one_in_a_second_is_told_as_the_time_of_one(count, seconds, text):
    assert rate_of(count, seconds, "rows") == text


@pytest.mark.parametrize(("seconds", "text"), [
    (0.04, "0.0 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599.7, "1 h 0 min"), (7384, "2 h 3 min"),
])  # fmt: skip
def test_a_duration_never_shows_sixty_of_anything(seconds, text):
    assert duration(seconds) == text


def test_time_left_does_not_count_what_an_earlier_run_has_done(clock):
    gauge = Gauge("Answering", 1000, "rows")
    with gauge:
        gauge.resume_from(80, 800)
        clock.now += 10
        gauge.add(10, 100)
        assert gauge.time_left() == "10 s left" and gauge.rate().startswith("1.0 rows/s")
        assert gauge.counts().startswith("90 rows")


def test_a_log_gets_few_lines_without_control_characters(clock, capsys):
    for _ in track(range(3600), "Answering", unit="rows"):
        clock.now += 1
    lines = capsys.readouterr().err.splitlines()
    assert 60 < len(lines) < 100
    assert lines[0].startswith("Answering: 0%, 5 of 3,600 rows, 1.0 rows/s, 59 min")
    assert lines[-1] == "Answering: 3,600 rows in 1 h 0 min (1.0 rows/s)."
    assert all(line.isprintable() for line in lines)


def test_short_work_says_one_line(clock, capsys):
    assert list(track([1, 2, 3], "Reading", unit="files")) == [1, 2, 3]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_notebook_shows_one_line_that_changes(clock, monkeypatch):
    stream = NotebookStream()
    monkeypatch.setattr(sys, "stderr", stream)
    seen = []
    for _ in track(range(1000), "Answering", unit="rows"):
        clock.now += 0.5
        seen.append(shown(stream.getvalue()))
    assert all(len(lines) <= 1 for lines in seen) and "12 of 1,000 rows" in seen[12][0]
    assert shown(stream.getvalue()) == ["Answering: 1,000 rows in 8 min 20 s (2.0 rows/s)."]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_shows_a_bar_with_rate_and_time_left(clock, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with Gauge("Reading [b]", 4_000_000) as gauge:
        clock.now += 2
        gauge.add(5, 1_000_000)
        gauge._display.bar.refresh()
    said = stream.getvalue()
    assert "Reading [b]" in said and "5 documents, 1.0 MB, 2.5 documents/s, 0.5 MB/s, 6.0 s left" in said


def test_without_a_total_only_count_and_rate_are_shown(clock, capsys):
    with Gauge("Reading") as gauge:
        clock.now += 5
        gauge.add(10)
    assert capsys.readouterr().err.splitlines()[0] == "Reading: 10 documents, 2.0 documents/s"


def test_training_shows_one_changing_line_in_a_notebook_and_keeps_validations(monkeypatch, tmp_path):
    stream = NotebookStream()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(training_log, "_SECONDS_BETWEEN_LINES", {True: 0.0})
    log = training_log.TrainingLog(tmp_path, 0, 1000)
    for step in (998, 999):
        log.show({"step": step, "loss": 1.0})
    log.show({"step": 1000, "loss": 1.0, "validation_loss": 2.0}, always=True)
    log.close()
    assert [line.split("  ")[0] for line in shown(stream.getvalue())] == ["step 1,000/1,000"]
    assert "\x1b" not in stream.getvalue()
