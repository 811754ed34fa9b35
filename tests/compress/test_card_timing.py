"""Models take turns on the clock; ratios are those of medians."""

import numpy as np
import pytest

from weft.compress.card.timing import Clock, TimedWork, faster, take_turns


class Watch:
    """A clock that moves only when a model works."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[str] = []

    def work(self, name: str, seconds: float) -> TimedWork:
        def spend(texts: int) -> None:
            self.turns.append(name)
            self.now += seconds * texts

        return TimedWork(lambda text: spend(1), lambda texts: spend(len(texts)))

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: 2 * self.now)


def test_a_model_that_computes_twice_has_half_the_speed():
    watch = Watch()
    once, twice = take_turns([watch.work("once", 0.25), watch.work("twice", 0.5)], [0, 1], [0, 1, 2], 3, watch.clock)
    assert once.alone.tolist() == [[0.25, 0.25]] * 3 and twice.alone.tolist() == [[0.5, 0.5]] * 3
    assert once.together.tolist() == [0.75] * 3 and twice.cpu.tolist() == [3.0] * 3
    ratio = faster(once.together, twice.together)
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)


def test_the_models_take_turns_and_none_is_always_first():
    watch = Watch()
    take_turns([watch.work(name, 1.0) for name in "abc"], [0], [0], 3, watch.clock)
    warm_up, timed = watch.turns[:3], watch.turns[3:]
    assert warm_up == ["a", "b", "c"]
    assert "".join(timed[::2]) == "abc" + "bca" + "cab"


def test_a_busy_round_moves_the_spread_but_not_the_ratio():
    before, after = np.array([2.0, 2.0, 2.0]), np.array([1.0, 4.0, 1.0])
    ratio = faster(before, after)
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 0.5, 2.0)


@pytest.mark.parametrize("count", [1, 4])
def test_every_round_times_every_text(count: int):
    watch = Watch()
    (times,) = take_turns([watch.work("one", 1.0)], range(count), range(count), 2, watch.clock)
    assert times.alone.shape == (2, count)
