"""What a reader sees first, on the page and on the terminal: the verdict, then rounded metrics."""

import json
import re
from dataclasses import replace

import pytest

from small_tasks import finetune, report_of, weft
from weft.metrics.bootstrap import Interval, mean_interval
from weft.metrics.difference import PairedDifference
from weft.metrics.judged import Judged
from weft.tasks.answer import Answer, AnswerSpan, Gold
from weft.tasks.classify import Classify
from weft.tasks.example import Example
from weft.tasks.judging.brief import brief_lines
from weft.tasks.judging.evaluation import Compared, Evaluation

AHEAD, BEHIND, LEVEL = (
    PairedDifference("accuracy", *ends) for ends in ((0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.01, -0.1, 0.1))
)
LONG = re.compile(r"\d\.\d{4}")
DECIDING = {
    "classify": "accuracy", "several": "micro F1", "tag": "F1", "similarity": "Spearman", "answer": "F1",
    "summarize": "ROUGE-1", "reply": "hits@1",
}  # fmt: skip


def evaluation(baseline=None, untuned=None):
    judged = Judged({"accuracy": 0.7151}, {"accuracy": Interval(0.65, 0.7733)}, None, None)
    other = replace(judged, figures={"accuracy": 0.5})
    compared = [
        None if gap is None else Compared(name, other, 0.0, gap)
        for name, gap in (("TF-IDF", baseline), ("untuned vectors", untuned))
    ]
    return Evaluation(Classify(), "test", [None] * 1200, [], judged, [], {}, 0, *compared)


@pytest.mark.parametrize(("gaps", "compared"), [
    ((AHEAD, AHEAD), "; better than TF-IDF (0.500) by 0.200 (0.100 … 0.300)"
                     "; better than untuned vectors (0.500) by 0.200 (0.100 … 0.300)"),
    ((BEHIND, LEVEL), "; worse than TF-IDF (0.500) by 0.200 (0.100 … 0.300)"
                      "; no clear difference from untuned vectors (0.500): 0.010 (−0.100 … 0.100)"),
    ((LEVEL, None), "; no clear difference from TF-IDF (0.500): 0.010 (−0.100 … 0.100)"),
    ((None, None), ""),
])  # fmt: skip
def test_the_verdict_is_the_metric_with_its_interval_and_how_it_compares(gaps, compared):
    assert evaluation(*gaps).verdict == f"accuracy 0.715 (0.650–0.773) on 1,200 texts{compared}"


@pytest.mark.parametrize("task", DECIDING)
def test_report_and_terminal_begin_with_the_verdict_and_show_every_metric_in_short(task, tuned):
    run = tuned(task)
    verdict = report_of(run)["verdict"]
    page = (run / "report.html").read_text()
    first = re.sub("<[^>]*>", "", page.partition("</h1>")[2].partition("</p>")[0])
    assert first == verdict
    for title in ("Metrics and baselines", "Worst mistakes", "Score by length", "Learning curve: loss", "Cost"):
        assert f"<h2>{title}</h2>" in page
    assert ("<h2>Calibration (" in page) == ("calibration" in report_of(run))
    results = json.loads((run / "weft.json").read_text())["results"]
    lines = brief_lines(results)
    assert lines[0] == verdict == results["verdict"] and verdict.startswith(f"{DECIDING[task]} ")
    assert not LONG.search("\n".join(lines)) and len(lines) < 25
    for value in results["figures"].values():
        assert any(f"{value:.{digits}f}" in line for line in lines for digits in (1, 3))


def test_results_of_the_former_version_have_a_verdict_too():
    """They had no differences, and a sentence in place of the line."""
    other = {"name": "TF-IDF", "figures": {"accuracy": 0.5}, "intervals": {}, "seconds": 1.0}
    cost = {"latency_ms_p50": 1.0, "latency_ms_p95": 2.0, "examples_per_second": 10.0}
    results = {"task": "classify", "examples": 4, "figures": {"accuracy": 0.75}, "intervals": {}, "cost": cost}
    assert brief_lines({**results, "baseline": other})[0] == "accuracy 0.750 on 4 texts; TF-IDF (0.500)"


def test_people_get_the_verdict_and_programs_all_of_it(tmp_path):
    said = finetune(tmp_path, "classify", baseline=True)
    model, data = tmp_path / "run/model", tmp_path / "train.jsonl"
    assert said.out.startswith("accuracy ") and not LONG.search(said.out)
    assert said.out.splitlines()[-1] == f"report: {tmp_path}/run/report.html"
    assert said.err.endswith(f"Next: weft predict {model} TEXT\n")
    assert weft("evaluate", model, data).out.startswith("accuracy ")
    assert {"verdict", "figures", "intervals", "cost"} <= set(json.loads(weft("evaluate", model, data, "--json").out))


def test_questions_about_one_context_are_drawn_together():
    golds = (Gold("Anna", 0),)
    examples = [Example((f"question {n}", f"Anna, {n // 5}"), golds) for n in range(100)]
    answers = [[AnswerSpan("Anna" if n // 5 % 2 else "Bob", 0, 4, 1.0)] for n in range(100)]
    found = Answer().judge(examples, answers).intervals["f1"]
    alone = mean_interval([float(n // 5 % 2) for n in range(100)])
    assert found.low < alone.low < 0.5 < alone.high < found.high
