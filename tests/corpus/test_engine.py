import os
import subprocess
import sys
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


def test_the_environment_stays_as_it_was(monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    list(work_on([{"number": number} for number in range(4)], double, workers=2))
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_users_mistake_is_raised_as_it_was_there():
    with pytest.raises(InputError, match="13 cannot be doubled"):
        list(work_on([{"number": 1}, {"number": 13}], double, workers=2))


def test_no_pieces_no_work():
    assert list(work_on([], double)) == []


def test_ctrl_c_ends_the_work_at_any_moment(tmp_path):
    """Also while the workers start, where daft would wait for ever. The signal goes to all, as from a terminal."""
    (tmp_path / "random.py").write_text("raise SystemExit('not this one')")  # as a user may have in their folder
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"{number} " * 1000)
    for started in ("Popen", "anything"):
        script = INTERRUPTED.format(started=started)
        # -P: as the command starts, which does not look for modules where it is called.
        command = [sys.executable, "-P", "-c", script]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 130, said
        assert "Traceback" not in said


# SIGINT is not heard by what a shell has put in the background, and its children: here it is meant to be.
INTERRUPTED = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
real = subprocess.Popen
workers = []
def popen(*arguments, **options):
    process = real(*arguments, **options)
    if "daft.execution.udf_worker" in arguments[0]:
        if "{started}" == "Popen":
            process.kill()  # Ctrl-C reaches the workers, too
        if not workers:
            os.kill(os.getpid(), signal.SIGINT)
        workers.append(process)
    return process
subprocess.Popen = popen
sys.argv = ["weft", "corpus", ".", "-o", "out", "--workers", "2"]
from weft.__main__ import start
start()
"""
