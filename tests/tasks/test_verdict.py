"""What a reader sees first, on the page and on the terminal: a verdict in words, then figures that are rounded."""

import json
import re

import pytest

from small_tasks import finetune, report_of, weft
from weft.evaluate.bootstrap import mean_interval
from weft.evaluate.difference import PairedDifference
from weft.evaluate.judged import Judged
from weft.tasks.answer import Answer, AnswerSpan, Gold
from weft.tasks.classify import Classify
from weft.tasks.judging.brief import in_brief
from weft.tasks.judging.evaluation import Compared, Evaluation
from weft.tasks.judging.figure_names import name_of
from weft.tasks.task import Example

AHEAD, BEHIND, LEVEL = (PairedDifference("accuracy", *ends) for ends in ((2, 1, 3), (-2, -3, -1), (0, -1, 1)))
LONG = re.compile(r"\d\.\d{5}")


def evaluation(baseline=None, untuned=None):
    judged = Judged({"accuracy": 0.7151}, {}, None, None)
    beside = [None if gap is None else Compared("it", judged, 0.0, gap) for gap in (baseline, untuned)]
    return Evaluation(Classify(), "test", [], [], judged, [], {}, 0, *beside)


@pytest.mark.parametrize(("gaps", "said"), [
    ((AHEAD, AHEAD), "The model is better than the baseline and better than the untuned model."),
    ((BEHIND, LEVEL), "The model is worse than the baseline and not shown to differ from the untuned model."),
    ((LEVEL, None), "The model is not shown to differ from the baseline."),
    ((None, None), "Accuracy is 0.715."),
])  # fmt: skip
def test_the_verdict_is_one_sentence_in_words(gaps, said):
    assert evaluation(*gaps).verdict == said


@pytest.mark.parametrize("task", ["classify", "tag", "similarity", "reply"])
def test_the_report_and_what_is_printed_begin_with_the_verdict(task, tuned, tmp_path):
    run = tuned(task)
    verdict = report_of(run)["verdict"]
    page = (run / "report.html").read_text()
    assert page.partition("</h1>")[2].lstrip().startswith(f"<p><strong>{verdict}</strong></p>")
    results = json.loads((run / "weft.json").read_text())["results"]
    printed = in_brief(results)
    assert next(iter(printed.items())) == ("verdict", verdict)
    deciding = {"classify": "accuracy", "tag": "f1", "similarity": "spearman", "reply": "hits_at_1"}[task]
    assert next(iter(results["figures"])) == deciding and list(printed)[2] == name_of(deciding, task)
    assert not LONG.search(" ".join(map(str, printed.values())))
    for value in results["figures"].values():
        assert any(f"{value:.{digits}f}" in str(row) for row in printed.values() for digits in (1, 3))


def test_people_get_the_verdict_and_programs_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    said = finetune(tmp_path, "classify", baseline=True)
    assert said.out.startswith("verdict") and not LONG.search(said.out)
    model, data = tmp_path / "run/model", tmp_path / "train.jsonl"
    assert weft("evaluate", model, data).out.startswith("verdict")
    assert {"verdict", "figures", "intervals", "cost"} <= set(json.loads(weft("evaluate", model, data, "--json").out))


def test_questions_about_one_context_are_drawn_together():
    golds = (Gold("Anna", 0),)
    examples = [Example((f"question {n}", f"Anna, {n // 5}"), golds) for n in range(100)]
    answers = [[AnswerSpan("Anna" if n // 5 % 2 else "Bob", 0, 4, 1.0)] for n in range(100)]
    found = Answer().judge(examples, answers).intervals["f1"]
    alone = mean_interval([float(n // 5 % 2) for n in range(100)])
    assert found.low < alone.low < 0.5 < alone.high < found.high
