"""The model before tuning, beside the tuned one."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

import weft
from small_tasks import finetune, report_of, rows_of, write_rows
from weft.interchange.pooling import read_pooling
from weft.metrics.baselines.frozen import FrozenClassifier, pair_features, row_cosines
from weft.tasks.judging.untuned import embed_texts
from weft.tokenizer.read import load_tokenizer
from weft.train.processes import Processes

TEXTS = ["a good film", "two", "a much longer text, with many more words in it than the others", "a good film"]


@pytest.mark.parametrize("pooling", [
    None, {"pooling_mode_cls_token": True}, {"pooling_mode_lasttoken": True}, {"pooling_mode_mean_tokens": True},
])  # fmt: skip
def test_vectors_are_those_that_the_model_itself_gives(pooling, tuned, tmp_path):
    folder = tuned("classify") / "model"
    if pooling is not None:
        copy = tmp_path / "model"
        weft.load(folder).save(copy)
        kinds = ["Transformer", "Pooling", "Normalize"]
        modules = [
            {"type": f"sentence_transformers.models.{kind}", "path": f"{n}_{kind}"} for n, kind in enumerate(kinds)
        ]
        (copy / "modules.json").write_text(json.dumps(modules))
        (copy / "1_Pooling").mkdir()
        (copy / "1_Pooling/config.json").write_text(json.dumps(pooling))
        folder = copy
    model = weft.load(folder)
    found = embed_texts(model.network, load_tokenizer(folder), read_pooling(folder), TEXTS, 48)
    np.testing.assert_allclose(found, model.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("task", ["classify", "several", "pair", "similarity"])
def test_an_encoder_with_weights_is_judged_before_it_is_tuned(task, tuned, tmp_path):
    said = finetune(tmp_path, task, model=str(tuned("classify") / "model"), baseline=True)
    assert said.code == 0, said.err
    report = report_of(tmp_path / "run")
    untuned = report["untuned"]
    gap, figure = untuned["difference"], untuned["difference"]["figure"]
    assert gap["value"] == pytest.approx(report["figures"][figure] - untuned["figures"][figure])
    assert gap["low"] <= gap["value"] <= gap["high"]
    low, high = untuned["intervals"][figure]
    assert low <= untuned["figures"][figure] <= high
    verdict = next(line for line in report["verdicts"] if "untuned" in line)
    for text in (verdict, said.out, (tmp_path / "run/report.html").read_text()):
        assert (gap["low"] > 0) != ("Tuning does not beat the untuned model." in text)
    if task == "similarity":
        assert set(untuned["figures"]) == {"spearman", "pearson"}


def test_other_processes_wait_for_the_untuned_model_however_long_it_takes(tuned, tmp_path, monkeypatch):
    """It reads all of the test data: that may take longer than any step of training."""
    ahead, seen = [], []

    @contextmanager
    def first_goes_ahead(processes):
        ahead.append(processes)
        yield
        ahead.pop()

    monkeypatch.setattr(Processes, "first_goes_ahead", first_goes_ahead)
    monkeypatch.setattr("weft.tasks.learning.finetune.ask_untuned", lambda *_: seen.append(len(ahead)))
    assert finetune(tmp_path, "classify", model=str(tuned("classify") / "model"), baseline=True).code == 0
    assert seen == [1]


def test_the_cosine_of_the_models_own_vectors_is_what_similarity_is_judged_by(tuned, tmp_path):
    folder, rows = tuned("classify") / "model", rows_of("similarity", 50)
    data = {
        name: str(write_rows(tmp_path / f"{name}.jsonl", part))
        for name, part in (("train", rows[:40]), ("test", rows[40:]))
    }
    assert finetune(tmp_path, "similarity", model=str(folder), data=data, baseline=True).code == 0
    model = weft.load(folder)
    cosine = row_cosines(*(model.embed([row[side] for row in rows[40:]]) for side in ("text", "second")))
    stats = pytest.importorskip("scipy.stats")
    expected = stats.spearmanr(cosine, [row["score"] for row in rows[40:]]).statistic
    assert report_of(tmp_path / "run")["untuned"]["figures"]["spearman"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("settings", [{}, {"baseline": False, "model": "tuned"}])
def test_fresh_weights_and_reports_without_a_baseline_have_no_untuned_model(settings, tuned, tmp_path):
    if settings.get("model"):
        settings = {**settings, "model": str(tuned("classify") / "model")}
    finetune(tmp_path, "classify", **{"baseline": True, **settings})
    assert "untuned" not in report_of(tmp_path / "run")


def test_the_features_that_tell_most_are_taken():
    draw = np.random.default_rng(0)
    gold = draw.integers(2, size=400)
    noise, signal = draw.normal(size=(400, 100)), gold[:, None] + 0.5 * draw.normal(size=(400, 1))
    model = FrozenClassifier.fit([noise, signal], gold.tolist(), 3, np.arange(400))
    chances = model.probabilities([noise, signal])
    assert model.chosen == 1 and chances.shape == (400, 3) and (chances[:, 2] == 0).all()
    assert (chances.argmax(1) == gold).mean() > 0.8


def test_of_features_that_tell_the_same_the_simpler_are_taken():
    draw = np.random.default_rng(3)
    gold = draw.integers(2, size=400)
    signal = gold[:, None] + draw.normal(size=(400, 1))
    richer = np.hstack([signal, 0.1 * draw.normal(size=(400, 3))])
    assert FrozenClassifier.fit([signal, richer], gold.tolist(), 2, np.arange(400)).chosen == 0


def test_what_is_known_by_heart_from_a_shared_text_is_not_taken():
    """Four examples share each text, and their label. The text's own vector tells nothing about a new text."""
    draw = np.random.default_rng(5)
    text = np.repeat(np.arange(100), 4)
    gold = draw.integers(2, size=100)[text]
    signal = gold[:, None] + 1.5 * draw.normal(size=(400, 1))
    richer = np.hstack([signal, 3 * draw.normal(size=(100, 200))[text]])
    assert FrozenClassifier.fit([signal, richer], gold.tolist(), 2, np.arange(400)).chosen == 1
    assert FrozenClassifier.fit([signal, richer], gold.tolist(), 2, text).chosen == 0


def test_training_examples_of_one_class_teach_that_class():
    """Of a rare class there may be none among those that the untuned model is given."""
    features = np.random.default_rng(0).normal(size=(10, 3))
    chances = FrozenClassifier.fit([features], [1] * 10, 3, np.arange(10)).probabilities([features])
    assert (chances == [0, 1, 0]).all()


def test_features_of_a_pair_are_both_their_distance_their_product_and_their_cosine():
    first, second = np.random.default_rng(1).normal(size=(2, 5, 4))
    alone, everything = pair_features(first, second)
    assert everything.shape == (5, 17) and (everything[:, 16:] == alone).all()
    np.testing.assert_allclose(everything[:, 8:16], np.hstack([abs(first - second), first * second]))
    unit = first / np.linalg.norm(first, axis=1, keepdims=True), second / np.linalg.norm(second, axis=1, keepdims=True)
    np.testing.assert_allclose(alone[:, 0], (unit[0] * unit[1]).sum(1))
