"""Differences of two that answered the same examples."""

import numpy as np
import pytest

from weft.metrics.bootstrap import class_intervals, example_intervals, mean_interval, sum_intervals
from weft.metrics.classes import class_figures, confusion
from weft.metrics.difference import PairedDifference, paired_difference
from weft.metrics.judged import Judged
from weft.metrics.values import value_figures

DRAW = np.random.default_rng(1)
GOLD = DRAW.integers(3, size=300)
OURS = np.where(DRAW.random(300) < 0.8, GOLD, DRAW.integers(3, size=300))
THEIRS = np.where(DRAW.random(300) < 0.6, GOLD, DRAW.integers(3, size=300))


def judged(figures, intervals):
    return Judged(figures, intervals, np.zeros(0), np.zeros(0))


def of_classes(predicted):
    return judged(class_figures(confusion(GOLD, predicted, 3)), class_intervals(GOLD, predicted, 3))


def of_means(predicted):
    right = predicted == GOLD
    return judged({"accuracy": right.mean()}, {"accuracy": mean_interval(right)})


def of_sums(predicted):
    one_hot = np.eye(9)[GOLD * 3 + predicted].reshape(-1, 3, 3)
    return judged(class_figures(one_hot.sum(0)), sum_intervals(one_hot, class_figures))


def of_values(predicted):
    figures = value_figures(GOLD, predicted)
    return judged(figures, example_intervals(300, lambda rows: value_figures(GOLD[rows], predicted[rows])))


def measured(figure, predicted, rows):
    if figure == "spearman":
        return value_figures(GOLD[rows], predicted[rows])["spearman"]
    return float(class_figures(confusion(GOLD[rows], predicted[rows], 3))[figure])


@pytest.mark.parametrize(("judge", "figure"), [
    (of_classes, "accuracy"), (of_classes, "f1"), (of_means, "accuracy"), (of_sums, "mcc"), (of_values, "spearman"),
])  # fmt: skip
def test_the_same_examples_are_drawn_for_both(judge, figure):
    found = paired_difference(figure, judge(OURS), judge(THEIRS))
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(1000):
        rows = generator.integers(300, size=300)
        drawn.append(measured(figure, OURS, rows) - measured(figure, THEIRS, rows))
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1e-9)
    everything = np.arange(300)
    assert found.value == pytest.approx(measured(figure, OURS, everything) - measured(figure, THEIRS, everything))


def test_a_difference_that_two_intervals_apart_would_hide_is_shown_by_pairs():
    worse = OURS.copy()
    worse[np.flatnonzero(OURS == GOLD)[:12]] = -1  # right elsewhere, wrong here
    worse = np.where(worse < 0, (GOLD + 1) % 3, worse)
    ours, theirs = of_classes(OURS), of_classes(worse)
    assert ours.intervals["accuracy"].low < theirs.intervals["accuracy"].high
    assert paired_difference("accuracy", ours, theirs).is_ahead


def test_an_answer_beside_itself_shows_no_difference():
    found = paired_difference("f1", of_classes(OURS), of_classes(OURS))
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert found.verdict.startswith("no clear difference")


@pytest.mark.parametrize(("found", "verdict"), [
    (PairedDifference("accuracy", 0.031, 0.012, 0.05), "better by 0.031 (0.012 … 0.050)"),
    (PairedDifference("accuracy", -0.031, -0.05, -0.012), "worse by 0.031 (0.012 … 0.050)"),
    (PairedDifference("f1", 0.01, -0.02, 0.04), "no clear difference: 0.010 (−0.020 … 0.040)"),
    (PairedDifference("bleu", 2.04, 1.0, 3.0), "better by 2.0 (1.0 … 3.0)"),
    (PairedDifference("perplexity", -2.0, -3.0, -1.0), "better by 2.0 (1.0 … 3.0)"),
    (PairedDifference("bits_per_byte", 0.2, 0.1, 0.3), "worse by 0.200 (0.100 … 0.300)"),
])  # fmt: skip
def test_a_verdict_says_who_is_better_and_by_how_much(found, verdict):
    assert found.verdict == verdict
    named = found.verdict_against("TF-IDF")
    assert named.replace(" than TF-IDF", "").replace(" from TF-IDF", "") == verdict != named


def test_what_has_no_interval_has_no_difference():
    assert paired_difference("accuracy", judged({"accuracy": 1.0}, {}), of_classes(OURS)) is None
