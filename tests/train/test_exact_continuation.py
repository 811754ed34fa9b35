"""A run killed with SIGKILL, also in the middle of a save, ends with the same bytes as one that nobody touched."""

import pytest

from kill_test import RECIPES, TASKS, kill_and_compare


@pytest.mark.parametrize("family", [*RECIPES, *TASKS])
def test_a_killed_run_ends_with_the_same_bytes(family, tmp_path, monkeypatch):
    if family == "gpt2":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")  # with several threads as with one
    assert kill_and_compare(family, kills=3, steps=240, place=tmp_path, seed=1) == 3
