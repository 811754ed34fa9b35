"""Files that a run would never write, and processes that are not the run's: what is shown stays right."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from watching import line, make_run, wait_for, watching, write_lock
from weft.watch import holder
from weft.watch.finding import folder_id
from weft.watch.reports import safe_report
from weft.watch.watcher import CurveQuery, RunWatcher

# A program whose command line is that of `python -m weft pretrain`, and which does nothing but hold a file open.
HOLDER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with Ctrl-C ignored
handle = open(sys.argv[-1], "a")
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.watch.watcher._LOOK_SECONDS", 0.0)


def rows(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in lines)


ABSURD = {
    "a second that lasts": rows({"step": 1, "loss": 1, "seconds": 0}, {"step": 2, "loss": 1, "seconds": 1e299}),
    "a long integer": rows({"step": 1, "tokens": int("9" * 299), "loss": 1, "seconds": 1}),
    "an end beyond all": rows(
        *({"step": step, "tokens": 9e299, "loss": 1e299, "validation_loss": 1.0, "seconds": 9e299} for step in (1, 2))
    ),
    "less than nothing": rows({"step": 0, "tokens": -9, "loss": -1e-320, "seconds": -5.0}),
    "steps beyond all": rows({"step": int("9" * 290), "loss": 1}, {"step": int("9" * 291), "loss": 2}),
}


@pytest.mark.parametrize("metrics", ABSURD.values(), ids=ABSURD)
def test_absurd_figures_of_one_run_do_not_take_away_the_others(tmp_path: Path, metrics: str):
    write_lock(make_run(tmp_path / "absurd", metrics, steps=9 * 10**14))
    make_run(tmp_path / "good", line(1))
    watcher = RunWatcher(tmp_path)
    told = watcher.listing()
    assert len(json.loads(json.dumps(told, allow_nan=False))["runs"]) == 2
    for id in told["ids"]:
        json.dumps(watcher.details(id), allow_nan=False)
        for x in ("step", "tokens", "seconds"):
            json.dumps(watcher.curves(id, CurveQuery(["loss", "validation_loss"], x=x)), allow_nan=False)


def test_a_tensor_of_any_size_is_not_multiplied_out(tmp_path: Path):
    folder = make_run(tmp_path / "run", line(1), checkpoint=1)
    header = json.dumps({"weight": {"shape": [10**18] * 100_000}}).encode()
    (folder / "checkpoints/step-000001/network.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (told,) = RunWatcher(tmp_path).listing()["runs"]
    assert told["parameters"] is None


def test_a_file_that_cannot_be_read_is_told_as_long_as_it_is_so(tmp_path: Path):
    folder = make_run(tmp_path / "run", line(1))
    (folder / "train.log").symlink_to(tmp_path)
    watcher = RunWatcher(tmp_path)
    for _ in range(3):
        assert "train.log cannot be read" in watcher.listing()["runs"][0]["problem"]
    (folder / "metrics.jsonl").rename(folder / "kept")
    os.mkfifo(folder / "metrics.jsonl")
    watcher.refresh()
    (folder / "train.log").unlink()
    assert "metrics.jsonl cannot be read" in watcher.listing()["runs"][0]["problem"]
    assert (
        watcher.details(folder_id("run"), ["log", "recipe"])["settings"]["name"] == "run"
    )  # what can be read is shown
    (folder / "kept").replace(folder / "metrics.jsonl")
    (told,) = watcher.listing()["runs"]
    assert (told["step"], told["problem"]) == (1, None)


@pytest.mark.parametrize("after", ["", line(3, sample="x" * 300_000)[:-5]], ids=["complete", "half"])
def test_the_last_step_is_seen_behind_very_long_lines(tmp_path: Path, after: str):
    make_run(tmp_path / "run", line(1) + line(2, sample="x" * 300_000) + after)
    (told,) = RunWatcher(tmp_path).listing()["runs"]
    assert told["step"] == 2


def test_checkpoints_on_another_disk_are_noticed(tmp_path: Path):
    folder, disk = make_run(tmp_path / "runs/run", line(1) + line(2)), tmp_path / "disk"
    disk.mkdir()
    (folder / "checkpoints").symlink_to(disk)
    watcher = RunWatcher(tmp_path / "runs")
    assert watcher.listing()["runs"][0]["state"] == "failed"
    (disk / "step-000002").mkdir()
    assert watcher.listing()["runs"][0]["state"] == "stopped"


def test_the_model_of_a_run_is_linked_below_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = make_run(tmp_path / "runs/run", line(1))
    (folder / "model").mkdir()
    (folder / "model/weft.json").write_text('{"kind": "model"}')
    monkeypatch.chdir(tmp_path)
    (written,) = RunWatcher(Path("runs")).details(folder_id("run"), ["lineage"])["lineage"]
    assert written["id"] == folder_id("run/model")


def test_a_page_of_an_earlier_service_is_told_everything_anew(tmp_path: Path):
    file = make_run(tmp_path / "run", "".join(line(step, 1.0) for step in range(1, 101))) / "metrics.jsonl"
    id, query = folder_id("run"), {"keys": ["loss"], "width": 1}
    first = RunWatcher(tmp_path)
    cursor, version = first.curves(id, CurveQuery(**query))["cursor"], first.listing()["version"]
    file.write_text("".join(line(step, 2.0) for step in range(1, 101)))
    second = RunWatcher(tmp_path)
    told = second.curves(id, CurveQuery(**query, since=cursor))
    assert (told["is_new"], told["series"]["loss"]["mean"]) == (True, [2.0] * 100)
    assert second.listing(version + 10**9)["runs"]  # the clock of that one was ahead


@pytest.mark.parametrize("part", ["<script>", "<style>", "<script>x</style>", '<a style="', "<a ", '<a style="x'])
def test_a_report_of_beginnings_without_ends_is_read_once(part: str):
    text = part * (1_000_000 // len(part))
    assert len(safe_report(text.encode()).content) <= len(text)


def test_a_pipe_in_place_of_the_log_is_refused(tmp_path: Path):
    os.mkfifo(make_run(tmp_path / "run", line(1)) / "resume.log")
    with watching(tmp_path, allow_control=True) as watched:
        refused = watched.post(f"/runs/{folder_id('run')}/resume", {}, timeout=20)
        assert refused.status_code == 409
        assert "resume.log" in refused.json()["error"]["message"]


@pytest.fixture
def process(tmp_path: Path):
    """A process that seems to be a training run, and has the file `open` in its hands."""
    command = [sys.executable, "-c", HOLDER, "-m", "weft", "pretrain", str(tmp_path / "open")]
    found = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert found.stdout.readline() == "open\n"
    yield found
    found.kill()
    found.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_number_that_another_run_was_given_is_not_stopped(tmp_path: Path, process: subprocess.Popen):
    folder = make_run(tmp_path / "runs/run", line(1))
    with watching(tmp_path / "runs", allow_control=True) as watched:
        stop = f"/runs/{folder_id('run')}/stop"
        write_lock(folder, process.pid)  # as if the clock had been set back: it is older than the lock
        assert "not running any more" in watched.post(stop, {}).json()["error"]["message"]
        assert process.poll() is None
        (folder / ".lock").unlink()
        (folder / ".lock").hardlink_to(tmp_path / "open")
        write_lock(folder, process.pid)
        assert watched.post(stop, {}).status_code == 202
        process.wait(60)
        assert process.returncode in (-signal.SIGINT, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_run_lives_on_when_the_clock_is_set_forward(tmp_path: Path, process: subprocess.Popen):
    folder = make_run(tmp_path / "runs/run", line(1))
    for is_open, state in ((False, "failed"), (True, "running")):
        if is_open:
            (folder / ".lock").unlink()
            (folder / ".lock").hardlink_to(tmp_path / "open")
        write_lock(folder, process.pid)
        os.utime(folder / ".lock", (time.time() - 7200,) * 2)  # now the process seems younger than its lock
        assert RunWatcher(tmp_path / "runs").listing()["runs"][0]["state"] == state


def test_numbers_that_no_process_has_are_no_process(tmp_path: Path):
    folder = make_run(tmp_path / "run", line(1))
    for number in (0, 2**31, 9_999_999_999):
        told = f"process {number} on {socket.gethostname()}, since 2026-01-01 00:00:00"
        (folder / ".lock").write_text(told)
        assert holder.lock_holder(folder) is None


def test_what_was_resumed_is_starting_until_it_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = make_run(tmp_path / "run", line(1), checkpoint=1)
    words = ["-c", HOLDER, str(tmp_path / "open")]
    real = subprocess.Popen
    monkeypatch.setattr(
        "weft.watch.control.subprocess.Popen", lambda given, **options: real([given[0], *words], **options)
    )
    watcher = RunWatcher(tmp_path)
    resumed = watcher.control.resume(watcher.run(folder_id("run")))
    try:
        assert watcher.listing()["runs"][0]["starting"]
        write_lock(folder, resumed.process.pid)
        wait_for(lambda: watcher.listing()["runs"][0]["state"] == "running")
        (folder / ".lock").write_text("")  # it has let go, and is about to end
        (told,) = watcher.listing()["runs"]
        assert (told["state"], told["starting"]) == ("stopped", False)
    finally:
        resumed.process.kill()
        resumed.process.wait()
    assert "exit code -9" in watcher.listing()["runs"][0]["resume_failure"]
    write_lock(folder)  # somebody else has resumed it since
    watcher.refresh()
    (folder / ".lock").unlink()
    assert watcher.listing()["runs"][0]["resume_failure"] is None
