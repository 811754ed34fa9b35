"""Numbers against scipy and scikit-learn, with ties and constants."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from weft.errors import InputError
from weft.metrics.values import value_figures

numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3).map(lambda value: round(value, 3)))


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=40))
def test_figures_equal_scipy(pairs):
    gold, predicted = np.array(pairs).T
    assume(len(set(gold)) > 1 and len(set(predicted)) > 1)
    found = value_figures(gold, predicted)
    assert found["pearson"] == pytest.approx(stats.pearsonr(gold, predicted)[0], abs=1e-9)
    assert found["spearman"] == pytest.approx(stats.spearmanr(gold, predicted)[0], abs=1e-9)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(gold, predicted))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(gold, predicted))


@given(numbers, st.lists(numbers, min_size=1, max_size=30))
def test_nothing_correlates_with_a_constant(constant, values):
    for pair in ((np.full(len(values), constant + 0.1), values), (values, np.full(len(values), constant + 0.1))):
        found = value_figures(*pair)
        assert (found["pearson"], found["spearman"]) == (0, 0)
        assert found["rmse"] >= found["mae"] * (1 - 1e-9)


def test_no_values_are_an_error():
    with pytest.raises(InputError):
        value_figures([], [])
