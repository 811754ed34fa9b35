"""A threshold per label: the best F1 by brute force, never a lower macro or micro F1, 0.5 where little is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.metrics.baselines.decided import baseline_decisions
from weft.metrics.classes import multilabel_figures
from weft.metrics.thresholds import label_thresholds


def drawn(seed: int, examples: int, labels: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that know a little of the labels; few `levels` make many ties."""
    generator = np.random.default_rng(seed)
    gold = generator.random((examples, labels)) < generator.uniform(0.02, 0.7, labels)
    noisy = gold * generator.uniform(0, 0.5, labels) + generator.random((examples, labels)) * 0.6
    return (np.round(noisy * levels) / levels).clip(0, 1).astype(np.float32), gold


def f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    return multilabel_figures(gold[:, None], predicted[:, None])["f1_micro"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(100, 200), st.sampled_from([5, 20, 100_000]))
def test_a_label_alone_has_the_best_f1_of_all_thresholds(seed, examples, levels):
    probabilities, gold = drawn(seed, examples, 1, levels)
    (found,) = label_thresholds(probabilities, gold)
    best = max(f1(gold[:, 0], probabilities[:, 0] > tried) for tried in [0.5, *probabilities[:, 0]])
    every = max(best, f1(gold[:, 0], np.full(examples, probabilities.min() > 0)))  # or all examples
    if gold.sum() < 5:
        assert found == 0.5
    else:
        assert f1(gold[:, 0], probabilities[:, 0] > found) == every and 0 < found < 1
    if f1(gold[:, 0], probabilities[:, 0] > 0.5) == every:
        assert found == 0.5  # ties go to it


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(100, 200), st.integers(1, 6), st.sampled_from([5, 20, 100_000]))
def test_neither_macro_nor_micro_f1_falls_and_no_more_labels_could_be_changed(seed, examples, labels, levels):
    probabilities, gold = drawn(seed, examples, labels, levels)
    thresholds = label_thresholds(probabilities, gold)
    before, after = (multilabel_figures(gold, probabilities > one) for one in (0.5, thresholds))
    assert after["f1"] >= before["f1"] and after["f1_micro"] >= before["f1_micro"]
    for label in np.flatnonzero(thresholds == 0.5):  # either 0.5 is best, or the change would lower micro F1
        alone = label_thresholds(probabilities[:, [label]], gold[:, [label]])[0]
        changed = np.where(np.arange(labels) == label, alone, thresholds)
        micro = multilabel_figures(gold, probabilities > changed)["f1_micro"]
        assert alone == 0.5 or micro < before["f1_micro"]


def test_a_label_that_costs_others_their_micro_f1_keeps_the_plain_threshold():
    gold, probabilities = np.zeros((200, 2), bool), np.full((200, 2), 0.1)
    gold[:100, 0], probabilities[:100, 0] = True, 0.9  # known without a mistake
    gold[:5, 1], probabilities[:60, 1] = True, 0.2  # 5 of 60
    assert label_thresholds(probabilities[:, [1]], gold[:, [1]])[0] == pytest.approx(0.15)
    assert label_thresholds(probabilities, gold).tolist() == [0.5, 0.5]


def test_few_examples_change_nothing():
    probabilities, gold = drawn(1, 99, 3, 100_000)
    assert label_thresholds(probabilities, gold).tolist() == [0.5] * 3
    gold, probabilities = np.zeros((150, 1), bool), np.full((150, 1), 0.01)
    gold[:4], probabilities[:4] = True, 0.3
    assert label_thresholds(probabilities, gold).tolist() == [0.5]
    gold[4], probabilities[4] = True, 0.3
    assert label_thresholds(probabilities, gold)[0] == pytest.approx(0.155)


def test_a_baseline_chooses_on_examples_that_it_was_not_trained_on():
    gold = np.random.default_rng(0).random((600, 2)) < 0.2
    groups, wanted, asked = np.arange(600) // 2, np.arange(600, 650), []

    def ask(known, about):
        asked.append((set(known.tolist()), set(about.tolist())))
        return np.where(gold[about % 600], 0.2, 0.1)

    found = baseline_decisions(ask, gold, groups, wanted)
    assert found.tolist() == gold[:50].astype(float).tolist()  # the threshold lies between 0.1 and 0.2
    (kept, held), (all_of_them, last) = asked
    assert kept | held == all_of_them == set(range(600)) and last == set(wanted.tolist())
    assert not {groups[i] for i in kept} & {groups[i] for i in held} and len(held) == 120
