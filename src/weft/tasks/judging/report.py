"""report.html and report.json of a model at its task: the verdict, the metrics beside a baseline, the mistakes, the
cost.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from weft.charts import Curve, chart, smooth
from weft.folders import to_json, write_file
from weft.metrics.judged import Judged
from weft.metrics.rounding import interval_text, rounded
from weft.page import bars, grid, page, table, tiles
from weft.tasks.catalog import metric_title
from weft.tasks.judging.evaluation import Compared, Evaluation
from weft.tasks.judging.label_suspects import Suspect
from weft.tasks.judging.verdict import tuning_warning
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.task import Task
from weft.train.run_folder import seed_folder
from weft.train.training_log import read_metrics

PAGE_NAME, FACTS_NAME = "report.html", "report.json"
SHOWN_CHARACTERS = 400  # of a text
SHOWN_CLASSES = 20
SHOWN_TILES = 4
RAW_TEXT_SOURCES = {
    "of the data": "as the data has it",
    "words joined as text is written": "joined from its words",
    "mixed": "partly joined from its words",
}


def write_task_report(
    folder: Path,
    name: str,
    evaluation: Evaluation,
    splits: Mapping[str, LabelledSplit],
    training: dict[str, Any] | None = None,
    sections: Sequence[str] = (),
) -> Path:
    """`sections`: more HTML, after the comparison with the baseline."""
    facts = {"name": name, "task": evaluation.task.name, "judged_on": evaluation.where, **evaluation.summary()}
    facts["slices"] = [{"length": title, "examples": count, "credit": mean} for title, count, mean in evaluation.slices]
    facts["left_out"] = {use: split.problems.sentences() for use, split in splits.items() if split.problems.count}
    facts["mended"] = {use: split.mended.sentences() for use, split in splits.items() if split.mended.count}
    facts["tables"] = {one.title: [one.headings, *one.rows] for one in evaluation.judged.tables}
    facts["mistakes"] = [_mistake(evaluation, example, answer) for example, answer in evaluation.mistakes()]
    if evaluation.suspects:
        facts["label_suspects"] = [_suspect(evaluation.task, one) for one in evaluation.suspects]
    if training:
        facts["training"] = {key: value for key, value in training.items() if key != "model"}
    write_file(folder / FACTS_NAME, to_json(facts))
    write_file(folder / PAGE_NAME, page(name, _parts(folder, name, evaluation, facts, sections)))
    return folder / PAGE_NAME


def _parts(
    folder: Path, name: str, evaluation: Evaluation, facts: dict[str, Any], sections: Sequence[str]
) -> list[str]:
    task, training = evaluation.task, facts.get("training", {})
    data = f"Task: {task.name}. Data: {len(evaluation.examples):,} {task.counted_as} of {evaluation.where}."
    if evaluation.cut:
        data += f" {evaluation.cut:,} of them are longer than the model reads; they are truncated or read in windows."
    return [
        f"<h1>{escape(name)}</h1>",
        f'<p style="color: var(--ink)"><strong>{escape(facts["verdict"])}</strong></p>',
        *(f"<p>{escape(one)}</p>" for one in (tuning_warning(facts), data, *evaluation.notes) if one),
        _tiles(evaluation),
        "<h2>Metrics and baselines</h2>",
        _comparison(evaluation),
        *sections,
        _from_raw_text(facts.get("from_raw_text")),
        *(f"<h2>{escape(one.title)}</h2>{grid(one.headings, one.rows)}" for one in evaluation.judged.tables),
        "<h2>Worst mistakes</h2>",
        _mistakes(facts["mistakes"]),
        _suspects(facts.get("label_suspects", [])),
        _calibration(evaluation),
        "<h2>Score by length</h2>",
        bars(
            [
                (title, mean, 1.0, f"{mean:.3f} on {count:,} example{'s' * (count != 1)}")
                for title, count, mean in evaluation.slices
            ]
        ),
        _curves(task, folder, training, evaluation.score),
        _classes(training.get("classes", {})),
        _seeds(training),
        "<h2>Cost</h2>",
        table([(key.replace("_", " "), f"{value:,}") for key, value in evaluation.cost.items()]),
        _problems("Rows left out", facts["left_out"]),
        _problems("Rows repaired", facts["mended"]),
    ]


def _tiles(evaluation: Evaluation) -> str:
    task, score = evaluation.task.name, evaluation.score
    shown = [(metric_title(key, task), rounded(key, value)) for key, value in evaluation.figures.items()][:SHOWN_TILES]
    if evaluation.baseline is not None:
        value = rounded(score, evaluation.baseline.judged.figures[score])
        shown.append((f"{metric_title(score, task)} of the baseline", value))
    return tiles(dict(shown))


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
    return grid(headings, rows) + _trained_on(evaluation.untuned)


def _trained_on(untuned: Compared | None) -> str:
    """A baseline on untuned vectors may have seen fewer examples than the model."""
    if untuned is None or not untuned.training_examples:
        return ""
    return f"<p>{escape(untuned.name)}: trained on {untuned.training_examples:,} examples.</p>"


def _interval(key: str, judged: Judged) -> str:
    gap = judged.intervals.get(key)
    return interval_text(key, (gap.low, gap.high)) if gap else ""


def _from_raw_text(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    text = (
        f"Scores from raw text: {facts['cut_by']} splits the text of {facts['sentences']:,} sentences "
        f"({RAW_TEXT_SOURCES[facts['text']]}) into words. This gives exactly the words of the "
        f"data in {facts['sentences_rebuilt']:.1%} of the sentences; the F1 of the split is {facts['word_f1']:.1%}."
    )
    if facts["left_out"]:
        text += f" {facts['left_out']:,} sentences are left out, because their words do not occur in their text."
    return f"<p>{escape(text)}</p>"


def _curves(task: Task, folder: Path, training: dict[str, Any], score: str) -> str:
    """Of the run; with several seeds, of the one that was kept."""
    metrics = read_metrics(seed_folder(folder, training["seed"]) if "seeds" in training else folder)
    if not metrics:
        return ""
    losses = Curve("training", "var(--a)", smooth([(line["step"], line["loss"]) for line in metrics]))
    held_out = [(line["step"], line["validation_loss"]) for line in metrics if "validation_loss" in line]
    both = [losses, Curve("validation", "var(--b)", held_out)]
    parts = [f"<h2>Learning curve: loss</h2><figure>{chart(both, 'step')}</figure>"]
    points = [(line["step"], line[f"validation_{score}"]) for line in metrics if f"validation_{score}" in line]
    if len(points) > 1:
        curve = chart([Curve("validation", "var(--b)", points)], "step")
        title = f"Learning curve: {metric_title(score, task.name)} on validation data"
        parts.append(f"<h2>{escape(title)}</h2><figure>{curve}</figure>")
    return "".join(parts)


def _classes(counts: dict[str, int]) -> str:
    if not counts:
        return ""
    total, shown = sum(counts.values()), list(counts.items())[:SHOWN_CLASSES]
    rows = [(name, float(count), float(count), f"{count:,}, {count / total:.1%}") for name, count in shown]
    more = f"<p>and {len(counts) - len(shown):,} more</p>" if len(counts) > len(shown) else ""
    return f"<h2>Classes in the training data</h2>{bars(rows)}{more}"


def _seeds(training: dict[str, Any]) -> str:
    seeds, task = training.get("seeds"), training.get("task", "")
    if not seeds:
        return ""
    text = f"On validation: {_spread(seeds, task)}"
    if "test" in seeds:
        text += f"; on test: {_spread(seeds['test'], task)}"
    text += f". The model that is best on validation was kept. All runs together took {seeds['training_seconds']:,} s."
    return f"<h2>Seeds: mean ± standard deviation</h2><p>{escape(text)}</p>"


def _spread(spread: dict[str, Any], task: str) -> str:
    """accuracy 0.912 ± 0.004 (0.908, 0.916)"""
    metric = spread["figure"]
    scores = ", ".join(rounded(metric, score) for score in spread["scores"])
    mean, deviation = (rounded(metric, spread[key]) for key in ("mean", "deviation"))
    return f"{metric_title(metric, task)} {mean} ± {deviation} ({scores})"


def _calibration(evaluation: Evaluation) -> str:
    found = evaluation.judged.calibration
    if found is None:
        return ""
    rows = [
        (f"confidence {one.confidence:.0%}", one.accuracy, 1.0, f"{one.accuracy:.0%} of {one.count:,} correct")
        for one in found.bins
    ]
    return f"<h2>Calibration (expected calibration error {found.ece:.1%})</h2>{bars(rows)}"


def _mistake(evaluation: Evaluation, example: Any, answer: Any) -> dict[str, str]:
    task = evaluation.task
    given = task.in_words(example)
    return {
        "place": example.place,
        "given": given if len(given) <= SHOWN_CHARACTERS else given[:SHOWN_CHARACTERS] + " …",
        "right": task.gold_in_words(example)[:SHOWN_CHARACTERS],
        "said": task.answer_in_words(example, answer)[:SHOWN_CHARACTERS],
    }


def _mistakes(found: list[dict[str, str]]) -> str:
    if not found:
        return "<p>None.</p>"
    rows = [[one["given"], one["right"], one["said"], one["place"]] for one in found]
    return grid(["input", "gold", "predicted", "place"], rows, "texts")


def _suspect(task: Task, found: Suspect) -> dict[str, Any]:
    example = found.example
    return {
        "place": example.place,
        "given": task.in_words(example)[:SHOWN_CHARACTERS],
        "label": task.gold_in_words(example),
        "suggested": found.label,
        "confidence": round(found.confidence, 4),
    }


def _suspects(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    rows = [
        [one["given"], one["label"], f"{one['suggested']} ({one['confidence']:.0%})", one["place"]] for one in found
    ]
    note = "The model and the baseline, which was trained without these examples, agree on another label."
    shown = grid(["input", "label", "suggested", "place"], rows, "texts")
    return f"<h2>Training labels that may be wrong</h2><p>{note}</p>{shown}"


def _problems(title: str, found: dict[str, list[str]]) -> str:
    rows = [(use, sentence) for use, sentences in found.items() for sentence in sentences]
    return f"<h2>{title}</h2>{table(rows)}" if rows else ""
