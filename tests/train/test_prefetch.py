"""Batches that are made ahead are the same batches, errors arrive at their step, and the thread ends with the loop."""

import threading

import pytest

from weft.train import loop
from weft.train.prefetch import Prefetcher


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "weft-prefetch"]


def test_steps_come_in_order_and_at_most_three_are_made_ahead():
    made = []

    def make(step):
        made.append(step)
        return step * step

    with Prefetcher(make, first=5) as ahead:
        for step in range(5, 50):
            assert ahead(step) == step * step
            assert max(made) <= step + 4  # two in the queue, one waiting for room, one being taken
    assert made == list(range(5, max(made) + 1))
    assert threads() == []


def test_an_error_is_raised_at_its_step_and_not_before():
    def make(step):
        if step == 3:
            raise ValueError("no such sample")
        return step

    with Prefetcher(make, 0) as ahead:
        assert [ahead(step) for step in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="no such sample"):
            ahead(3)
    with Prefetcher(make, 0) as ahead:
        assert ahead(0) == 0  # a run that ends here never sees the error
    assert threads() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_thread_ends_when_the_loop_fails(error):
    with pytest.raises(error), Prefetcher(lambda step: step, 0) as ahead:
        ahead(0)
        raise error
    assert threads() == []


def test_a_run_with_batches_made_ahead_ends_with_the_same_bytes(tmp_path, monkeypatch):
    from test_processes import run

    plain, _ = run(tmp_path / "plain")
    used = []

    class Watched(Prefetcher):
        def __enter__(self):
            used.append(True)
            return super().__enter__()

    monkeypatch.setattr(loop, "Prefetcher", Watched)
    monkeypatch.setattr(loop, "prefetches", lambda device: True)
    ahead, _ = run(tmp_path / "ahead")
    assert used == [True]
    for name, parameter in plain.named_parameters():
        assert parameter.detach().numpy().tobytes() == ahead.get_parameter(name).detach().numpy().tobytes(), name
    assert threads() == []
