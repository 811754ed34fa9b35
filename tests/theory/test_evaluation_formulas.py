"""The chapter on evaluation: each formula as written gives what weft computes."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weft.generate.log_probs import to_score
from weft.metrics.baselines.classify import LogisticRegression, TextClassifier, shares_of
from weft.metrics.bootstrap import Interval, mean_interval, proportion_interval, sum_intervals
from weft.metrics.calibration import calibration
from weft.metrics.classes import class_figures, confusion, per_class
from weft.metrics.difference import paired_difference
from weft.metrics.judged import Judged
from weft.metrics.rouge import rouge
from weft.metrics.translations import translation_counts, translation_figures
from weft.theory.written import evaluation as written

seeds = st.integers(0, 2**31)
labelled = st.integers(2, 4).flatmap(
    lambda L: st.tuples(
        st.just(L), st.lists(st.tuples(st.integers(0, L - 1), st.integers(0, L - 1)), min_size=1, max_size=12)
    )
)
sentences = st.lists(st.sampled_from("abc"), max_size=7)


def table_of(data):
    L, pairs = data
    gold, predicted = zip(*pairs, strict=True)
    return confusion(gold, predicted, L), gold, predicted


@given(labelled)
def test_accuracy(data):
    found, gold, predicted = table_of(data)
    C = written.confusion_of(gold, predicted, data[0])
    np.testing.assert_array_equal(found, C)
    stack = np.stack([found, found + 1])  # as the bootstrap has
    one_deep, two_deep = class_figures(stack), class_figures(stack[:, None])
    for name, of in (("accuracy", written.accuracy_of), ("mcc", written.matthews), ("f1", written.macro_f1)):
        np.testing.assert_allclose(one_deep[name], [of(C), of(C + 1)], atol=1e-12)
        np.testing.assert_allclose(two_deep[name], [[of(C)], [of(C + 1)]], atol=1e-12)


@given(labelled)
def test_f1(data):
    C, _, _ = table_of(data)
    for c, score in enumerate(per_class(C)):
        expected = (written.class_precision(C, c), written.recall_of(C, c), written.f1_of(C, c), C[c].sum())
        assert (score.precision, score.recall, score.f1, score.support) == pytest.approx(expected)


@given(labelled)
def test_macro_f1(data):
    C, _, _ = table_of(data)
    for table in (C, C.T):
        figures = class_figures(np.stack([table, table + 1])[:, None])
        for place, one in enumerate((table, table + 1)):
            found = {name: values[place, 0] for name, values in figures.items()}
            assert found == pytest.approx(
                {
                    "accuracy": written.accuracy_of(one),
                    "f1_micro": written.accuracy_of(one),
                    "f1": written.macro_f1(one),
                    "f1_weighted": written.weighted_f1(one),
                    "mcc": written.matthews(one),
                },
                abs=1e-12,
            )


@given(labelled)
def test_matthews(data):
    C, gold, predicted = table_of(data)
    found = class_figures(C)["mcc"]
    np.testing.assert_allclose(found, written.matthews(C), atol=1e-12)
    X, Y = (np.eye(data[0])[list(side)] for side in (gold, predicted))  # it is a correlation of one-hot vectors
    spread = [((side - side.mean(0)) ** 2).sum() for side in (X, Y)]
    if all(spread):
        assert found == pytest.approx(((X - X.mean(0)) * (Y - Y.mean(0))).sum() / math.sqrt(math.prod(spread)))


@given(st.integers(1, 12), st.integers(2, 4), st.floats(0.2, 3), seeds)
@example(4, 2, 1.0, 0)
@example(4, 12, 1.0, 0)
def test_calibration(count, labels, size, seed):
    generator = np.random.default_rng(seed)
    logits = size * generator.normal(size=(count, labels))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p[0] = [0.75, *[0.25 / (labels - 1)] * (labels - 1)]  # at the middle of a bin
    if count > 1:
        p[1] = [0.5, *[0.5 / (labels - 1)] * (labels - 1)]  # at an edge: it belongs to the lower bin
    gold = generator.integers(labels, size=count)
    if count == 4:  # one right and one wrong, in the two highest or the two lowest bins
        p[2:] = [
            [top, *[(1 - top) / (labels - 1)] * (labels - 1)] for top in ((0.85, 0.97) if labels < 5 else (0.15, 0.09))
        ]
        gold[2:] = [0, 1]
    found = calibration(p, gold)
    assert found.ece == pytest.approx(written.calibration_error(p, gold, 10))
    assert found.brier == pytest.approx(written.brier_score(p, gold))
    assert all(one.count > 0 for one in found.bins) and sum(one.count for one in found.bins) == count


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0.5, 0.99))
@example(7, 0, 0.95)
@example(7, 7, 0.95)
@example(3, 0, 0.6)
def test_wilson(total, right, level):
    right = min(right, total)
    found = proportion_interval(right, total, level=level)
    assert found == pytest.approx(written.wilson(right, total, NormalDist().inv_cdf((1 + level) / 2)), abs=1e-12)
    assert found[0] >= 0 and found[1] <= 1
    assert (found[0] == 0) == (right == 0) and (found[1] == 1) == (right == total)


@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([0.5, 0.9, 0.95]), seeds)
def test_bootstrap(size, rounds, level, seed):
    x = np.random.default_rng(seed).normal(size=size) + 2
    generator = np.random.default_rng(seed + 1)
    draws = [generator.integers(size, size=size) for _ in range(rounds)]
    found = mean_interval(x, rounds=rounds, level=level, seed=seed + 1)
    m = written.resampled_means(x, draws)
    np.testing.assert_allclose(found.drawn, m)
    assert (found.low, found.high) == pytest.approx(written.middle_of(m, level))
    twice = sum_intervals(  # two columns at once
        np.stack([x, -x], 1), lambda sums: {"mean": sums[:, 1] / size}, rounds=rounds, level=level, seed=seed + 1
    )
    np.testing.assert_allclose(twice["mean"].drawn, -np.array(m))


@given(st.integers(1, 6), st.sampled_from(["accuracy", "loss"]), st.sampled_from([0.5, 0.95]), st.floats(-2, 2), seeds)
@example(3, "accuracy", 0.95, 0.0, None)
@example(3, "loss", 0.95, 0.0, None)
def test_paired_difference(rounds, figure, level, shift, seed):
    values = np.zeros((2, rounds)) if seed is None else np.random.default_rng(seed).normal(size=(2, rounds))
    values[0] += shift
    sides = [Judged({figure: x.mean() + 0.1 * i}, {figure: Interval(0, 0, x)}, x, x) for i, x in enumerate(values)]
    found = paired_difference(figure, *sides, level=level)
    low, high = written.middle_of(written.differences(*values), level)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.value == pytest.approx(values[0].mean() - values[1].mean() - 0.1)
    assert found.is_ahead == (found.high < 0 if figure == "loss" else found.low > 0)


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=3), st.booleans())
@settings(max_examples=60)
@example([(list("abcd"), list("abcd"))], False)
@example([(list("abcabc"), list("abcabcab"))], False)
@example([(list("abcab"), list("cabbaa"))], False)
@example([(list("aaaa"), list("bbbb"))], False)
@example([(list("acbd"), list("abcd"))], False)
@example([(list("abc"), list("abc"))], False)
def test_bleu(pairs, copied):
    pairs = [(c, c + r if copied else r) for c, r in pairs]
    found = translation_figures(translation_counts([" ".join(c) for c, _ in pairs], [" ".join(r) for _, r in pairs]))
    assert found["bleu"] == pytest.approx(written.bleu_of(pairs))


@given(sentences, sentences)
@settings(max_examples=60)
@example(list("ca"), list("bc"))
def test_rouge(a, b):
    found = rouge(" ".join(a), " ".join(b))
    expected = [written.rouge_n(a, b, 1), written.rouge_n(a, b, 2), *[written.rouge_l(a, b)] * 2]
    assert [found[kind] for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum")] == pytest.approx(expected)


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_bits_per_byte(log_p, text):
    size = len(text.encode("utf-8", "surrogatepass"))
    found = to_score(log_p, text)
    assert (found.perplexity, found.bits_per_byte) == pytest.approx(written.perplexity_and_bits(log_p, size))
    assert found.log_probs == log_p
    nothing = to_score([], text)
    assert math.isnan(nothing.perplexity) and nothing.bits_per_byte is None
    assert to_score(log_p, "").bits_per_byte is None
    assert to_score([-700.0], text).perplexity == math.inf  # e^710 is no number any more
    assert to_score([-699.0], text).perplexity == pytest.approx(math.exp(699))


@given(st.integers(1, 4), st.integers(2, 3), seeds)
@settings(max_examples=15)
def test_baseline(features, count, seed):
    generator = np.random.default_rng(seed)
    W, b, x = generator.normal(size=(features, count)), generator.normal(size=count), generator.normal(size=features)
    chances = LogisticRegression(W, b).chances(x[None])
    np.testing.assert_allclose(chances[0], [written.chance_of(W[:, c], b[c], x) for c in range(count)])
    np.testing.assert_allclose(shares_of(chances), [written.one_against_rest(W, b, x)])
    np.testing.assert_allclose(shares_of(np.zeros((1, count))), [[1 / count] * count])  # all rounded to 0
    np.testing.assert_allclose(shares_of(np.array([[0.0, 0.5]])), [[0, 1]])
    texts, labels = ["tea hatter", "mock turtle", "tea hare", "turtle soup"], [0, 1, 0, 1]
    model = TextClassifier.fit(texts, labels, count)
    assert model.regression.weights.shape[1] == count
    rows = model.vectors.of(texts).toarray()
    expected = [written.one_against_rest(model.regression.weights, model.regression.biases[:2], row) for row in rows]
    found = model.probabilities(texts)
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-5)
    assert (found.argmax(1) == labels).all() and (found[:, 2:] == 0).all()
