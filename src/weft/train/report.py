"""report.html of a run: results, curves and samples.

Everything on the page is read from the run folder, so it can be written again at any time, also for a stopped run.
"""

from html import escape
from pathlib import Path
from typing import Any

from weft.charts import Curve, chart, smooth
from weft.folders import MANIFEST, read_json, write_file
from weft.page import page, table, tiles
from weft.train.training_log import read_metrics

_REPORT_FILE = "report.html"
_RESULT_TITLES = {"by_counting": "baseline"}  # keys of the results that the page shows under another name
_TILES = {  # figures at the top of the page
    "validation_loss": "validation loss",
    "perplexity": "perplexity",
    "bits_per_character": "bits per character",
    "validation_masked_accuracy": "masked words found",
    "validation_next-sentence_accuracy": "pairs classified correctly",
}


def write_run_report(folder: Path) -> Path:
    facts, metrics = read_json(folder / MANIFEST), read_metrics(folder)
    name = str(facts.get("asked", {}).get("name", folder.name))
    results = facts.get("results", {})
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p>{escape(_summary(results, metrics))}</p>",
        _tiles(results, metrics),
        "<h2>Loss</h2>",
        _loss_chart(metrics),
        _extra_chart(metrics),
        _samples(metrics),
        "<h2>Results</h2>",
        table(_flat({_RESULT_TITLES.get(key, key): value for key, value in results.items() if key != "model"})),
        "<h2>Recipe</h2>",
        table(_flat(facts.get("asked", {}))),
    ]
    write_file(folder / _REPORT_FILE, page(name, parts))
    return folder / _REPORT_FILE


def _summary(results: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    if not metrics:
        return "Nothing has been trained yet."
    last = metrics[-1]
    parameters = f"{results['parameters']:,} parameters, " if "parameters" in results else ""
    minutes = last["seconds"] / 60
    return f"{parameters}{last['step']:,} steps, {last['tokens']:,} tokens, {minutes:.1f} minutes"


def _tiles(results: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    found: dict[str, Any] = results.get("validation") or next(
        (line for line in reversed(metrics) if "validation_loss" in line), {}
    )
    values = {title: f"{found[key]:.3f}" for key, title in _TILES.items() if key in found}
    if counted := results.get("by_counting"):
        key = "bits_per_character" if "bits_per_character" in counted else "validation_masked_accuracy"
        values[f"{_TILES[key]}, {counted['name']}"] = f"{counted[key]:.3f}"
    if "test" in results and "bits_per_character" in results["test"]:
        values["bits per character, test"] = f"{results['test']['bits_per_character']:.3f}"
    if metrics:
        values["tokens per second"] = f"{metrics[-1]['tokens_per_second']:,.0f}"
    return tiles(values)


def _loss_chart(metrics: list[dict[str, Any]]) -> str:
    lines = [Curve("training", "var(--a)", smooth([(line["step"], line["loss"]) for line in metrics]))]
    held_out = [(line["step"], line["validation_loss"]) for line in metrics if "validation_loss" in line]
    if held_out:
        lines.append(Curve("validation", "var(--b)", held_out))
    return f"<figure>{chart(lines, 'step')}</figure>"


def _extra_chart(metrics: list[dict[str, Any]]) -> str:
    """The curve of the figure by which models of this kind are usually compared."""
    for key, title in [
        ("bits_per_character", "Bits per character"),
        ("validation_masked_accuracy", "Masked words found"),
    ]:
        points = [(line["step"], line[key]) for line in metrics if key in line]
        if len(points) > 1:
            return f"<h2>{title}</h2><figure>{chart([Curve('validation', 'var(--b)', points)], 'step')}</figure>"
    return ""


def _samples(metrics: list[dict[str, Any]]) -> str:
    rows = [(f"step {line['step']:,}", line["sample"]) for line in metrics if "sample" in line]
    return f"<h2>Samples during training</h2>{table(rows, 'sample')}" if rows else ""


def _flat(tree: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(tree, dict):
        return [row for key, value in tree.items() for row in _flat(value, f"{path}.{key}" if path else str(key))]
    shown = f"{tree:,}" if isinstance(tree, int) and not isinstance(tree, bool) else str(tree)
    return [(path, f"{tree:.4g}" if isinstance(tree, float) else shown)]
