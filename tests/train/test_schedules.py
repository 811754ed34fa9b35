import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.train.schedules import Schedule

kinds = st.sampled_from(["cosine", "linear", "wsd"])


@given(kinds, st.integers(1, 500), st.integers(0, 100), st.floats(0, 1), st.floats(0, 0.5))
def test_rates_rise_to_the_peak_and_never_rise_again(kind, steps, warmup, decay, floor):
    rates = [Schedule(steps, kind, min(warmup, steps), decay, floor)(step) for step in range(steps)]
    assert all(0 <= rate <= 1 for rate in rates)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


def test_each_kind_has_its_shape():
    assert [Schedule(10, "linear")(step) for step in (0, 5, 10)] == [1.0, 0.5, 0.0]
    assert Schedule(10, "cosine")(5) == pytest.approx(0.5)
    assert Schedule(10, "cosine")(2) > Schedule(10, "linear")(2)
    stable = [Schedule(100, "wsd", warmup=10, decay=0.2)(step) for step in (0, 4, 9, 10, 79, 80, 90, 100)]
    assert stable == pytest.approx([0.1, 0.5, 1, 1, 1, 1, 0.5, 0])
    assert Schedule(10, "linear", floor=0.1)(10) == pytest.approx(0.1)
