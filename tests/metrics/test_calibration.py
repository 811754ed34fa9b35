"""Calibration against a straightforward loop."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.metrics import brier_score_loss

from weft.errors import InputError
from weft.metrics.calibration import Bin, abstention, best_temperature, calibration, log_loss


def by_hand(probabilities, gold):
    bins = []
    edges = np.linspace(0, 1, 11)
    for low, high in pairwise(edges):
        inside = [i for i, row in enumerate(probabilities) if low < max(row) <= high]
        if inside:
            right = [np.argmax(probabilities[i]) == gold[i] for i in inside]
            bins.append((np.mean([max(probabilities[i]) for i in inside]), np.mean(right), len(inside)))
    return bins, sum(count * abs(accuracy - confidence) for confidence, accuracy, count in bins) / len(gold)


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(2, 5), st.floats(0.1, 10))
def test_bins_errors_and_brier_are_those_of_a_loop(seed, size, labels, sharpness):
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.full(labels, sharpness), size)
    gold = generator.integers(labels, size=size)
    found = calibration(probabilities, gold)
    bins, error = by_hand(probabilities, gold)
    assert [(one.confidence, one.accuracy, one.count) for one in found.bins] == [pytest.approx(one) for one in bins]
    assert found.ece == pytest.approx(error)
    wanted = brier_score_loss(gold, probabilities, labels=range(labels), scale_by_half=False)
    assert found.brier == pytest.approx(wanted)


def test_a_confidence_on_the_edge_of_two_bins_is_in_one():
    probabilities = [[tenths / 10, 1 - tenths / 10] for tenths in range(11)]
    found = calibration(probabilities, [0] * 11)
    bins, error = by_hand(probabilities, [0] * 11)
    assert sum(one.count for one in found.bins) == 11
    assert [(one.confidence, one.accuracy, one.count) for one in found.bins] == [pytest.approx(one) for one in bins]
    assert found.ece == pytest.approx(error)


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_worst():
    right, wrong = calibration([[1, 0], [0, 1]], [0, 1]), calibration([[1, 0], [0, 1]], [1, 0])
    assert (right.ece, right.brier, right.bins) == (0, 0, (Bin(1, 1, 2),))
    assert (wrong.ece, wrong.brier, wrong.bins) == (1, 2, (Bin(1, 0, 2),))


def test_probabilities_that_are_true_are_calibrated():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet([1, 1, 1], 50_000)
    gold = [generator.choice(3, p=row) for row in probabilities]
    assert calibration(probabilities, gold).ece < 0.01


def test_no_predictions_are_an_error():
    with pytest.raises(InputError):
        calibration(np.zeros((0, 3)), [])


@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0.2, 5))
def test_no_temperature_makes_the_gold_labels_more_probable(seed, labels, sharpness):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(300, labels)) * 2
    gold = [generator.choice(labels, p=np.exp(row / sharpness) / np.exp(row / sharpness).sum()) for row in logits]
    found = best_temperature(logits, gold)
    best = log_loss(logits / found, np.asarray(gold))
    for other in np.geomspace(0.1, 10, 60):
        assert best <= log_loss(logits / other, np.asarray(gold)) + 0.01  # a label is never quite sure
    assert 0.6 * sharpness < found < 1.7 * sharpness or abs(np.log(sharpness)) > 1


@pytest.mark.parametrize("count", [100, 1000])
def test_examples_that_are_all_right_do_not_make_a_model_sure_of_everything(count):
    logits, right = np.asarray([[3.0, 0.0], [0.0, 3.0]] * (count // 2)), [0, 1] * (count // 2)
    found = best_temperature(logits, right)
    assert 1 / (1 + np.exp(-3 / found)) == pytest.approx(1 - 1 / (2 * count + 4), abs=1e-4)
    assert best_temperature(logits, [1, 0] * (count // 2)) == pytest.approx(10)


def test_the_log_loss_is_that_of_scikit_learn():
    generator = np.random.default_rng(1)
    logits, gold = generator.normal(size=(50, 4)) * 5, generator.integers(4, size=50)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert log_loss(logits, gold) == pytest.approx(metrics.log_loss(gold, shares, labels=range(4)))
    assert log_loss(logits + 5000, gold) == pytest.approx(log_loss(logits, gold))


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([0.5, 0.8, 0.95, 1.0]))
def test_abstention_answers_as_much_as_it_may(seed, size, wanted):
    generator = np.random.default_rng(seed)
    top = generator.integers(5, 11, size) / 10  # with ties
    probabilities = np.stack([top, 1 - top], 1)
    gold = (generator.random(size) > top).astype(int)
    right = probabilities.argmax(1) == gold
    enough = [one for one in set(top) if right[top >= one].mean() >= wanted]
    found = abstention(probabilities, gold, wanted)
    assert (found is None) == (not enough)
    if found is not None:
        assert found.confidence == min(enough)
        assert found.answered == pytest.approx((top >= found.confidence).mean())
        assert found.accuracy == pytest.approx(right[top >= found.confidence].mean())
