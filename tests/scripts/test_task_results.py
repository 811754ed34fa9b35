"""The page of results: old entries are still shown, new ones have differences."""

import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
OLD = {
    "score": 0.5, "interval": [0.4, 0.6], "classical": 0.58, "classical_method": "TF-IDF", "examples": 277,
    "training_examples": 100, "training_seconds": 10.0, "latency_ms_p50": 2.0, "date": "2026-11-17",
}  # fmt: skip


@pytest.fixture
def results(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import task_results

    yield task_results
    for name in ("task_results", "experiments"):
        sys.modules.pop(name, None)


def run_of(verdict):
    gap = {"figure": "accuracy", "value": -0.04, "low": -0.1, "high": 0.02, "verdict": verdict}
    beside = {"name": "other", "figures": {"accuracy": 0.62}, "intervals": {"accuracy": [0.56, 0.68]}, "seconds": 1.0}
    beside |= {"difference": gap, "differences": {"accuracy": gap}}
    return {
        "figures": {"accuracy": 0.58, "f1_raw": 0.51}, "intervals": {"accuracy": [0.5, 0.66], "f1_raw": [0.4, 0.6]},
        "examples": 277, "baseline": beside, "untuned": {**beside, "name": "untuned vectors"},
        "cost": {"training_examples": 100, "training_seconds": 10.0, "latency_ms_p50": 2.0},
    }  # fmt: skip


def test_entries_without_differences_are_still_in_the_table(results):
    row = results.table({"rte": OLD})[-1]
    assert "**0.500** (0.400 – 0.600) | 0.580, TF-IDF | – | – | 100 |" in row
    kept = json.loads((SCRIPTS.parent / "docs/results.json").read_text())
    assert len(results.table(kept)) > 2 and len(results.pair_table(kept)) > 2


def test_a_run_is_kept_with_the_untuned_model_intervals_and_verdicts(results):
    said = results.of_run(results.EXPERIMENTS["rte"], run_of("no difference shown (-4.0 points, -10.0 to 2.0)"))
    head, _, row = results.table({"rte": said})
    assert head.count("|") == row.count("|")
    assert "0.620 (0.560 – 0.680), untuned vectors" in row and "from raw text 0.510 (0.400 – 0.600)" in row
    assert "baseline: no difference shown (-4.0 points, -10.0 to 2.0); untuned model: no difference shown" in row


def test_an_entry_that_was_measured_by_another_score_is_shown_with_that_score(results):
    before = {**OLD, "score": 6.6, "interval": [6.5, 6.7], "classical": 8.8}
    assert "| chrf | from scratch | **6.6** (6.5 – 6.7) | 8.8, TF-IDF |" in results.table({"cornell": before})[-1]
    now = {**OLD, "figure": "hits_at_1"}
    assert "| hits@1 of 20 | from scratch | **0.500** (0.400 – 0.600) |" in results.table({"cornell": now})[-1]
    other = {**OLD, "figure": "mcc"}  # the experiment's score was changed since
    assert "| mcc | MiniLM |" in results.table({"rte": other})[-1]


def test_a_run_says_by_which_score_it_was_measured(results):
    assert results.of_run(results.EXPERIMENTS["rte"], run_of("–"))["figure"] == "accuracy"


@pytest.mark.parametrize(("verdict", "beaten"), [
    ("better by 0.030 (0.010 … 0.050)", True), ("worse by 0.030 (0.010 … 0.050)", False),
    ("ahead by 3.0 points (1.0 to 5.0)", True), ("behind by 3.0 points (1.0 to 5.0)", False),
    ("no difference shown (1.0 points, -2.0 to 3.0)", False),
])  # fmt: skip
def test_the_page_says_where_tuning_does_not_beat_the_untuned_model(verdict, beaten, results):
    said = results.of_run(results.EXPERIMENTS["rte"], run_of(verdict))
    lines = "\n".join(results.not_beaten({"rte": said}))
    assert ("Tuning is better than the untuned model" in lines) == beaten
    assert (f"* Entailment (RTE, dev): {verdict}" in lines) != beaten
    assert results.not_beaten({"rte": OLD}) == [""]
