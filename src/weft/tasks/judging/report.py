"""report.html and report.json of a fine-tuned model: how good, next to what, where it fails, what it costs."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from weft.charts import Curve, chart, smooth
from weft.evaluate.judged import Judged
from weft.evaluate.rounding import interval_text, rounded
from weft.folders import to_json, write_file
from weft.page import bars, grid, page, table, tiles
from weft.tasks.judging.evaluation import SHOWN, Evaluation
from weft.tasks.judging.metric_names import metric_title
from weft.tasks.judging.verdict import tuning_warning
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.task import Task
from weft.train.run_folder import seed_folder
from weft.train.training_log import read_metrics

REPORT, FACTS = "report.html", "report.json"
MOST_TEXT = 400  # characters of an example that are shown


def write_task_report(
    folder: Path,
    name: str,
    evaluation: Evaluation,
    splits: Mapping[str, LabelledSplit],
    training: dict[str, Any] | None = None,
) -> Path:
    facts = {"name": name, "task": evaluation.task.name, "judged_on": evaluation.where, **evaluation.summary()}
    facts["slices"] = [{"length": title, "examples": count, "credit": mean} for title, count, mean in evaluation.slices]
    facts["left_out"] = {use: split.problems.sentences() for use, split in splits.items() if split.problems.count}
    facts["mended"] = {use: split.mended.sentences() for use, split in splits.items() if split.mended.count}
    facts["tables"] = {one.title: [one.headings, *one.rows] for one in evaluation.judged.tables}
    facts["mistakes"] = [_mistake(evaluation, example, answer) for example, answer in evaluation.mistakes()]
    if training:
        facts["training"] = {key: value for key, value in training.items() if key != "model"}
    write_file(folder / FACTS, to_json(facts))
    write_file(folder / REPORT, page(name, _parts(folder, name, evaluation, facts)))
    return folder / REPORT


def _parts(folder: Path, name: str, evaluation: Evaluation, facts: dict[str, Any]) -> list[str]:
    task, judged, score = evaluation.task, evaluation.judged, evaluation.score
    shown = {metric_title(key, task.name): rounded(key, value) for key, value in evaluation.figures.items()}
    shown = dict(list(shown.items())[:4])
    if evaluation.baseline is not None:
        shown[f"{metric_title(score, task.name)}, {evaluation.baseline.name}"] = rounded(
            score, evaluation.baseline.judged.figures[score]
        )
    said = f"{task.name}, judged on {len(evaluation.examples):,} examples of {evaluation.where}"
    if evaluation.cut:
        said += f", {evaluation.cut:,} of them longer than the model reads: cut, or read in windows"
    return [
        f"<h1>{escape(name)}</h1>",
        f"<p><strong>{escape(facts['verdict'])}</strong></p>",
        f"<p>{escape(warning)}</p>" if (warning := tuning_warning(facts)) else "",
        f"<p>{escape(said)}</p>",
        *(f"<p>{escape(note)}</p>" for note in evaluation.notes),
        tiles(shown),
        "<h2>How good, next to a classical method</h2>",
        _comparison(evaluation),
        _from_raw_text(facts.get("from_raw_text")),
        _curves(task, folder, facts.get("training", {}), score),
        *(f"<h2>{escape(one.title)}</h2>{grid(one.headings, one.rows)}" for one in judged.tables),
        "<h2>Short and long</h2>",
        bars([(title, mean, 1.0, f"{mean:.3f} on {count:,} examples") for title, count, mean in evaluation.slices]),
        _calibration(evaluation),
        _learnt_from(facts.get("training", {})),
        "<h2>The hardest mistakes</h2>",
        _mistakes(facts["mistakes"]),
        "<h2>Cost</h2>",
        table([(key.replace("_", " "), f"{value:,}") for key, value in evaluation.cost.items()]),
        _told("Left out", facts["left_out"]),
        _told("Mended", facts["mended"]),
    ]


def _comparison(evaluation: Evaluation) -> str:
    judged = evaluation.judged
    others = [one for one in (evaluation.baseline, evaluation.untuned) if one is not None]
    headings = ["", "model", "95 % interval"]
    for one in others:
        headings += [one.name, "95 % interval"]
    rows = []
    for key, value in evaluation.figures.items():
        row = [metric_title(key, evaluation.task.name), rounded(key, value), _interval(key, judged)]
        for one in others:
            known = one.judged.figures
            row += [rounded(key, known[key]) if key in known else "", _interval(key, one.judged)]
        rows.append(row)
    said = ""
    if evaluation.untuned is not None and (count := evaluation.untuned.learnt_from):
        said = f"<p>The logistic regression on untuned vectors learnt from {count:,} examples.</p>"
    return grid(headings, rows) + said


def _interval(key: str, judged: Judged) -> str:
    gap = judged.intervals.get(key)
    return interval_text(key, (gap.low, gap.high)) if gap else ""


def _from_raw_text(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    said = (
        f"F1 from raw text: words are cut by {facts['cut_by']} from the text ({facts['text']}) of "
        f"{facts['sentences']:,} sentences. {facts['sentences_rebuilt']:.1%} of the sentences come out as the given "
        f"words, F1 of words is {facts['word_f1']:.1%}."
    )
    if facts["left_out"]:
        said += f" Left out: {facts['left_out']:,} sentences whose words are not those of their text."
    return f"<p>{escape(said)}</p>"


def _curves(task: Task, folder: Path, training: dict[str, Any], score: str) -> str:
    """Of the run; of several, the one that was kept."""
    metrics = read_metrics(seed_folder(folder, training["seed"]) if "seeds" in training else folder)
    if not metrics:
        return ""
    lines = [Curve("training", "var(--a)", smooth([(line["step"], line["loss"]) for line in metrics]))]
    held_out = [(line["step"], line["validation_loss"]) for line in metrics if "validation_loss" in line]
    parts = [f"<h2>Loss</h2><figure>{chart([*lines, Curve('validation', 'var(--b)', held_out)], 'step')}</figure>"]
    points = [(line["step"], line[f"validation_{score}"]) for line in metrics if f"validation_{score}" in line]
    if len(points) > 1:
        title = f"{metric_title(score, task.name)} on validation"
        title = title[0].upper() + title[1:]
        parts.append(f"<h2>{title}</h2><figure>{chart([Curve('validation', 'var(--b)', points)], 'step')}</figure>")
    return "".join(parts)


def _learnt_from(training: dict[str, Any]) -> str:
    """How often each class was there to learn from; and how much of the score was luck."""
    parts, classes = [], training.get("classes", {})
    if classes:
        total = sum(classes.values())
        shown = list(classes.items())[:SHOWN]
        rows = [(name, float(count), float(count), f"{count:,}, {count / total:.1%}") for name, count in shown]
        more = f"<p>and {len(classes) - SHOWN:,} more</p>" if len(classes) > SHOWN else ""
        parts.append(f"<h2>Classes in the training data</h2>{bars(rows)}{more}")
    if seeds := training.get("seeds"):
        said = f"On validation: {_said_spread(seeds, training['task'])}"
        if "test" in seeds:
            said += f"; on test: {_said_spread(seeds['test'], training['task'])}"
        said += ". The best model on validation was kept."
        said += f" They took {seeds['training_seconds']:,} s."
        parts.append(f"<h2>Several seeds</h2><p>{said}</p>")
    return "".join(parts)


def _said_spread(spread: dict[str, Any], task: str) -> str:
    """Mean and deviation of several seeds, and each."""
    figure = spread["figure"]
    scores = ", ".join(rounded(figure, score) for score in spread["scores"])
    mean, deviation = (rounded(figure, spread[key]) for key in ("mean", "deviation"))
    return f"{metric_title(figure, task)} {mean} ± {deviation} ({scores})"


def _calibration(evaluation: Evaluation) -> str:
    found = evaluation.judged.calibration
    if found is None:
        return ""
    rows = [
        (f"said {one.confidence:.0%}", one.accuracy, 1.0, f"{one.accuracy:.0%} of {one.count:,} right")
        for one in found.bins
    ]
    return f"<h2>As sure as it is right? (off by {found.ece:.1%} on average)</h2>{bars(rows)}"


def _mistake(evaluation: Evaluation, example: Any, answer: Any) -> dict[str, str]:
    task = evaluation.task
    given = task.in_words(example)
    return {
        "place": example.place,
        "given": given if len(given) <= MOST_TEXT else given[:MOST_TEXT] + " …",
        "right": task.gold_in_words(example)[:MOST_TEXT],
        "said": task.answer_in_words(example, answer)[:MOST_TEXT],
    }


def _mistakes(found: list[dict[str, str]]) -> str:
    if not found:
        return "<p>None.</p>"
    rows = [[one["given"], one["right"], one["said"]] for one in found[:SHOWN]]
    return grid(["given", "right", "said"], rows, "texts")


def _told(title: str, found: dict[str, list[str]]) -> str:
    rows = [(use, sentence) for use, sentences in found.items() for sentence in sentences]
    return f"<h2>{title}</h2>{table(rows)}" if rows else ""
