from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import small_tasks


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch, threads: Callable[[int], None]) -> None:
    """More only get into each other's way with models as small as these; in processes that are started, too."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads(1)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run folder of a small model that was fine-tuned for a task; once for all tests."""

    @cache
    def run(task: str) -> Path:
        folder = tmp_path_factory.mktemp(task)
        said = small_tasks.finetune(folder, task, baseline=True)
        assert said.code == 0, said.err
        return folder / "run"

    return run
