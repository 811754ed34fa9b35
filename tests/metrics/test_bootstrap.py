"""Intervals: they hold the truth about as often as they say, and are the same every time."""

import numpy as np
import pytest

from weft.errors import InputError
from weft.metrics.bootstrap import (
    Interval,
    class_intervals,
    clustered_mean_interval,
    example_intervals,
    mean_interval,
    proportion_interval,
    sum_intervals,
)
from weft.metrics.classes import class_figures
from weft.metrics.entities import entity_counts, entity_figures, entity_figures_from_counts
from weft.metrics.translations import translation_counts, translation_figures
from weft.metrics.translations import translation_figures_from_counts as translated_figures

TRIALS = 300
SHARES = np.array([[0.45, 0.05, 0.02], [0.08, 0.2, 0.02], [0.03, 0.05, 0.1]])  # of a population's confusion matrix


def f1(sums):
    """Of sums (…, 3): found, too many, missed."""
    return {"f1": 2 * sums[..., 0] / (2 * sums[..., 0] + sums[..., 1] + sums[..., 2])}


def covered(intervals, truth):
    return np.mean([one.low <= truth <= one.high for one in intervals])


def test_intervals_of_a_mean_hold_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(1)
    for level in (0.95, 0.8):
        samples = generator.exponential(2.0, (TRIALS, 120))
        intervals = [mean_interval(values, rounds=300, level=level) for values in samples]
        assert covered(intervals, 2.0) == pytest.approx(level, abs=0.06)


def test_intervals_of_class_figures_hold_the_truth_as_often_as_they_say():
    truth = class_figures(SHARES)
    samples = np.random.default_rng(2).choice(9, (TRIALS, 200), p=SHARES.ravel())
    intervals = [class_intervals(*np.divmod(sample, 3), 3, rounds=300) for sample in samples]
    assert set(intervals[0]) == set(truth)
    for name, value in truth.items():
        assert covered([one[name] for one in intervals], value) == pytest.approx(0.95, abs=0.06), name


def test_intervals_of_f1_hold_the_truth_as_often_as_they_say():
    rates = np.array([1.2, 0.4, 0.6])
    samples = np.random.default_rng(3).poisson(rates, (TRIALS, 100, 3))
    intervals = [sum_intervals(counts, f1, rounds=300)["f1"] for counts in samples]
    assert covered(intervals, f1(rates)["f1"]) == pytest.approx(0.95, abs=0.06)


def test_intervals_of_a_mean_in_clusters_hold_the_truth_where_single_examples_would_not():
    generator = np.random.default_rng(5)
    clusters = [number // 6 for number in range(300)]
    chances = np.repeat(generator.beta(1.5, 1.0, (TRIALS, 50)), 6, axis=1)  # how hard each text is
    samples = (generator.random(chances.shape) < chances).astype(float)
    truth = 1.5 / 2.5
    found = [clustered_mean_interval(values, clusters, rounds=300) for values in samples]
    assert covered(found, truth) == pytest.approx(0.95, abs=0.05)
    assert covered([mean_interval(values, rounds=300) for values in samples], truth) < 0.88


@pytest.mark.parametrize("clusters", [range(40), [0] * 40, [number // 20 for number in range(40)]])
def test_clusters_of_one_example_or_too_few_of_them_are_single_examples(clusters):
    values = np.arange(40) % 3 == 0
    assert clustered_mean_interval(values, list(clusters)) == mean_interval(values)


def test_clusters_that_are_all_right_are_no_certainty():
    assert clustered_mean_interval(np.ones(40), [n // 2 for n in range(40)]) == mean_interval(np.ones(40))


def test_figures_of_classes_are_drawn_as_sums_are():
    generator = np.random.default_rng(4)
    gold, predicted = np.divmod(generator.choice(9, 500, p=SHARES.ravel()), 3)
    by_cell = class_intervals(gold, predicted, 3)
    one_hot = np.eye(9)[gold * 3 + predicted].reshape(-1, 3, 3)
    by_sum = sum_intervals(one_hot, class_figures)
    for name, found in by_cell.items():
        assert found.drawn == pytest.approx(by_sum[name].drawn), name
    assert by_cell["accuracy"] == mean_interval(gold == predicted)


@pytest.mark.parametrize(("right", "total"), [(10, 10), (0, 10), (1, 1), (7, 10), (481, 872), (1, 100_000)])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_a_proportion_has_the_interval_of_wilson(right, total, level):
    binomtest = pytest.importorskip("scipy.stats").binomtest
    expected = binomtest(right, total).proportion_ci(level, "wilson")
    assert proportion_interval(right, total, level=level) == pytest.approx([expected.low, expected.high], abs=1e-12)
    values = np.arange(total) < right
    if total < 1000:
        found = mean_interval(values, level=level)
        assert (found.low, found.high) == proportion_interval(right, total, level=level)


def test_measuring_the_drawn_examples_anew_gives_what_their_sums_give():
    counts = np.random.default_rng(8).poisson(2.0, (50, 3))
    anew = example_intervals(50, lambda rows: {"f1": float(f1(counts[rows].sum(0))["f1"])})
    summed = sum_intervals(counts, f1)
    assert [anew["f1"].low, anew["f1"].high] == pytest.approx([summed["f1"].low, summed["f1"].high])


def test_what_is_large_is_drawn_in_parts_to_the_same_end(monkeypatch):
    generator = np.random.default_rng(5)
    (gold, predicted), counts = generator.integers(6, size=(2, 36)), generator.poisson(1.0, (36, 3))
    whole = class_intervals(gold, predicted, 6), sum_intervals(counts, f1)
    monkeypatch.setattr("weft.metrics.bootstrap._MOST_NUMBERS", 36 * 7)
    assert (class_intervals(gold, predicted, 6), sum_intervals(counts, f1)) == whole


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    values = np.random.default_rng(6).normal(size=50)
    assert mean_interval(values) == mean_interval(values) != mean_interval(values, seed=1)
    counts = np.random.default_rng(6).poisson(2.0, (40, 3))
    assert sum_intervals(counts, f1) == sum_intervals(counts, f1) != sum_intervals(counts, f1, seed=1)
    sides = np.random.default_rng(7).integers(3, size=(2, 40))
    assert class_intervals(*sides, 3) == class_intervals(*sides, 3) != class_intervals(*sides, 3, seed=1)


def test_figures_of_entities_and_translations_lie_in_their_intervals():
    generator = np.random.default_rng(7)
    gold = [list(generator.choice(["O", "B-A", "I-A", "B-B"], 12)) for _ in range(60)]
    predicted = [[tag if generator.random() < 0.8 else "O" for tag in row] for row in gold]
    intervals = sum_intervals(entity_counts(gold, predicted)[1], entity_figures_from_counts)
    for name, value in entity_figures(gold, predicted).items():
        assert intervals[name].low < value < intervals[name].high, name
    texts = [[" ".join(row) for row in side] for side in (predicted, gold)]
    intervals = sum_intervals(translation_counts(*texts), translated_figures)
    for name, value in translation_figures(translation_counts(*texts)).items():
        assert intervals[name].low < value < intervals[name].high, name


def test_a_single_example_has_an_interval_without_width():
    assert mean_interval([0.25]) == Interval(0.25, 0.25)
    assert sum_intervals(np.array([[1, 1, 0]]), f1)["f1"] == Interval(2 / 3, 2 / 3)
    assert class_intervals(np.array([0]), np.array([1]), 2)["f1"] == Interval(0, 0)


def test_sentences_without_entities_have_an_interval_at_zero():
    counts = entity_counts([["O"], ["O", "O"]], [["O"], ["O", "O"]])[1]
    assert set(sum_intervals(counts, entity_figures_from_counts).values()) == {Interval(0, 0)}


def test_nothing_to_draw_from_is_an_error_that_says_so():
    for empty in (
        lambda: mean_interval([]),
        lambda: sum_intervals(np.zeros((0, 3)), f1),
        lambda: class_intervals(np.zeros(0, int), np.zeros(0, int), 2),
        lambda: example_intervals(0, lambda rows: {"size": float(len(rows))}),
    ):
        with pytest.raises(InputError, match="no examples"):
            empty()
