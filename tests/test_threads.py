"""Threads that wait without spinning, unless the user says otherwise; as many as the container pays for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weft.threads import (
    WAITING,
    allowed_cores,
    prepare_openmp,
    quota_of_cgroups,
    thread_count_restored,
    usable_cores,
    use_threads,
)

SCRIPTS = Path(__file__).parent.parent / "scripts"


def test_waiting_threads_hardly_spin():
    environment: dict[str, str] = {}
    prepare_openmp(environment, loaded=False)
    assert environment["OMP_WAIT_POLICY"] == "passive"
    assert int(environment["GOMP_SPINCOUNT"]) <= 1000


@pytest.mark.parametrize("name", WAITING)
def test_what_the_user_has_set_stays(name):
    environment = {name: "7", "OMP_NUM_THREADS": "3"}
    prepare_openmp(environment, loaded=False)
    assert environment == {name: "7", "OMP_NUM_THREADS": "3"}


def test_nothing_is_set_once_torch_is_there():
    environment: dict[str, str] = {}
    prepare_openmp(environment)
    assert environment == {}


@pytest.mark.parametrize("first", ["weft", "weft.api.model", "weft.__main__", "weft.model.network", "quickstart"])
def test_openmp_learns_of_it_whatever_is_imported_first(first):
    """libgomp tells how it was set when it is loaded."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    code = f"import sys; sys.path.append({str(SCRIPTS)!r}); import {first}, torch"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("this torch has another OpenMP runtime")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr


@pytest.mark.parametrize(
    ("listed", "files", "quota"),
    [
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),  # the parent's counts, too
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, 2.0),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("5:memory:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("nonsense", {"cpu.max": "nonsense"}, None),
    ],
)
def test_the_quota_of_a_container_is_found(listed, files, quota, tmp_path):
    (tmp_path / "cgroup").write_text(listed + "\n")
    for name, text in files.items():
        place = tmp_path / "fs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")
    assert quota_of_cgroups(tmp_path / "fs", tmp_path / "cgroup") == quota


def test_no_more_threads_than_the_quota_pays_for(monkeypatch):
    monkeypatch.setattr("weft.threads.quota_of_cgroups", lambda: 0.5)
    environment: dict[str, str] = {}
    prepare_openmp(environment, loaded=False)
    assert environment.get("OMP_NUM_THREADS") == ("1" if allowed_cores() > 0.5 else None)


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (0.5, 1), (2.5, 3), (64.0, 8)])
def test_usable_cores_are_those_allowed_and_paid_for(quota, cores, monkeypatch):
    monkeypatch.setattr("weft.threads.allowed_cores", lambda: 8)
    monkeypatch.setattr("weft.threads.quota_of_cgroups", lambda: quota)
    assert usable_cores() == cores


def test_a_run_gives_the_threads_back(threads):
    threads(1)
    with thread_count_restored():
        assert use_threads(2) == 2
    assert use_threads(None) == torch.get_num_threads() == 1
