"""Classes against scikit-learn, also where a class is absent from one side or both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics

from weft.errors import InputError
from weft.metrics.classes import class_figures, confusion, multilabel_figures, per_class

LABELS = 4


@st.composite
def labelled(draw):
    size, most = draw(st.integers(1, 30)), draw(st.integers(0, LABELS - 1))
    rows = st.lists(st.integers(0, most), min_size=size, max_size=size)
    return draw(rows), draw(rows)


@given(labelled())
def test_confusion_equals_scikit_learn(pair):
    assert (confusion(*pair, LABELS) == metrics.confusion_matrix(*pair, labels=range(LABELS))).all()


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=100)
@given(labelled())
def test_figures_equal_scikit_learn(pair):
    found = class_figures(confusion(*pair, LABELS))
    for name, average in (("f1", "macro"), ("f1_micro", "micro"), ("f1_weighted", "weighted")):
        assert found[name] == pytest.approx(metrics.f1_score(*pair, average=average, zero_division=0)), name
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(*pair))
    assert found["mcc"] == pytest.approx(metrics.matthews_corrcoef(*pair))


@given(labelled())
def test_scores_per_class_equal_scikit_learn(pair):
    expected = metrics.precision_recall_fscore_support(*pair, labels=range(LABELS), zero_division=0)
    for score, *wanted in zip(per_class(confusion(*pair, LABELS)), *expected, strict=True):
        assert [score.precision, score.recall, score.f1, score.support] == pytest.approx(wanted)


def test_a_stack_of_matrices_equals_one_by_one():
    matrices = np.random.default_rng(0).poisson(0.6, (5, 3, LABELS, LABELS))
    together = class_figures(matrices)
    for place in np.ndindex(5, 3):
        for name, value in class_figures(matrices[place]).items():
            assert together[name][place] == pytest.approx(value)


@given(st.data(), st.integers(1, 12), st.integers(2, 5))
def test_several_classes_equal_scikit_learn(data, size, labels):
    gold, predicted = (data.draw(arrays(bool, (size, labels))) for _ in range(2))
    found = multilabel_figures(gold, predicted)
    for name, average in (("f1", "macro"), ("f1_micro", "micro")):
        assert found[name] == pytest.approx(metrics.f1_score(gold, predicted, average=average, zero_division=0)), name
    assert found["exact"] == pytest.approx(metrics.accuracy_score(gold, predicted))
    assert found["hamming"] == pytest.approx(metrics.hamming_loss(gold, predicted))


def test_small_integers_do_not_overflow():
    gold = np.full(10, 19, np.uint8)
    assert confusion(gold, gold, 20)[19, 19] == 10


@pytest.mark.parametrize(
    ("gold", "predicted", "error"),
    [([], [], InputError), ([0, 1], [0], ValueError), ([0, 3], [0, 1], ValueError), ([0, 1], [0, -1], ValueError)],
)
def test_what_cannot_be_counted_is_an_error(gold, predicted, error):
    with pytest.raises(error):
        confusion(gold, predicted, 3)
