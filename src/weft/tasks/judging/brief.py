"""What `weft finetune` and `weft evaluate` print for people: the verdict, then a few short lines.

`--json` and report.json have all numbers in full.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.metrics.rounding import interval_text, rounded
from weft.tasks.catalog import TASKS, metric_title
from weft.tasks.judging.verdict import COMPARED, tuning_warning, verdict_line

LISTS = {"notes": "note", "left_out": "left out", "mended": "repaired"}
MOST_SENTENCES = 5  # of one kind


def brief_lines(results: Mapping[str, Any]) -> list[str]:
    """Of results as weft.json has them, also those of earlier versions."""
    return [verdict_line(results), "", *_metric_table(results), "", *_facts(results)]


def _metric_table(results: Mapping[str, Any]) -> list[str]:
    """A row per metric, a column for the model and each it is compared with."""
    others = [results[key] for key in COMPARED if key in results]
    rows = [["", "model", *(other["name"] for other in others)]]
    for metric, value in results["figures"].items():
        interval = results["intervals"].get(metric)
        model = rounded(metric, value) + (f" ({interval_text(metric, interval)})" if interval else "")
        cells = (rounded(metric, one["figures"][metric]) if metric in one["figures"] else "" for one in others)
        rows.append([metric_title(metric, results["task"]), model, *cells])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _facts(results: Mapping[str, Any]) -> Iterator[str]:
    cost, unit = results["cost"], TASKS[results["task"]].counted_as
    yield f"data: {results['examples']:,} {unit} of {results.get('judged_on', results.get('data'))}"
    if "training_examples" in cost:
        best = f"; best step: {results['best_step']:,}" if results.get("best_step") is not None else ""
        yield (
            f"training: {cost['training_examples']:,} {unit}, {cost['steps']:,} steps, "
            f"{cost['training_seconds']:,} s{best}"
        )
    if seeds := results.get("seeds"):
        yield f"seeds: {_spread(seeds, results['task'])}"
    yield (
        f"speed: {cost['latency_ms_p50']:,} ms for one example (p95 {cost['latency_ms_p95']:,} ms), "
        f"{cost['examples_per_second']:,} {unit}/s in batches"
    )
    if cut := results.get("cut"):
        yield f"too long: {cut:,} {unit}, truncated or read in windows"
    if warning := tuning_warning(results):
        yield f"note: {warning}"
    for key, title in LISTS.items():
        for sentence in results.get(key, ())[:MOST_SENTENCES]:
            yield f"{title}: {sentence}"
    for key in ("model", "report"):
        if key in results:
            yield f"{key}: {results[key]}"


def _spread(seeds: Mapping[str, Any], task: str) -> str:
    use, spread = ("test", seeds["test"]) if "test" in seeds else ("validation", seeds)
    mean, deviation = (rounded(spread["figure"], spread[key]) for key in ("mean", "deviation"))
    return f"{len(spread['scores'])}; {metric_title(spread['figure'], task)} on {use} {mean} ± {deviation}"
