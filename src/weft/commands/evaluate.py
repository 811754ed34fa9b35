"""`weft evaluate`, also `weft.evaluate(...)` in Python: a model at its task, or a language model on text."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.api.model import Model, load
from weft.commands.corpus import reading_in
from weft.commands.printing import print_facts
from weft.commands.shots import evaluate_prompted, label_options
from weft.commands.tasks import evaluate_task, print_judged
from weft.errors import InputError, RecipeError, as_items, as_path
from weft.metrics.rounding import interval_text, rounded
from weft.sources.documents import read_documents
from weft.sources.files import held_out_part, list_files
from weft.sources.reading import Reading
from weft.sources.standard_input import standard_input_as_file
from weft.train.text_evaluation import TextScores, language_head, score_texts

_SCORED = {
    "causal": "tokens",
    "masked": "masked tokens",
    "span": "target tokens of span corruption",
    "denoise": "denoised tokens",
}  # by objective

PathOrPaths = str | Path | Sequence[str | Path]


def evaluate_model(
    model: Model | str | Path,
    data: PathOrPaths,
    *,
    task: str | None = None,
    train: PathOrPaths = (),
    columns: Sequence[str] | Mapping[str, str] = (),
    encoding: str | None = None,
    format: str | None = None,
    output: str | Path | None = None,
    limit_bytes: int | None = None,
    precision: str | None = None,
    shots: int | None = None,
    labels: Sequence[str] | Mapping[str, str] = (),
) -> dict[str, Any]:
    """How good a model is: the object that `weft evaluate --json` prints.

        weft.evaluate("runs/x/model", "test.tsv")["figures"]

    A model with a task is evaluated on labelled examples: `figures` with `intervals`, cost, and a baseline if `train`
    names training data. `columns`: {"text": "sentence"}. `output`: a folder for report.html and report.json. A language
    model is evaluated on text: perplexity, bits per byte, or accuracy on masked tokens. `limit_bytes`: read at most
    this much of the text. `precision`: as in `weft.load`, for a model that is given by its folder.

    With `shots`, a language model is evaluated at a task with labels without tuning: each prompt holds so many
    labelled examples of `train`. `labels`: how labels are written in the prompt, {"pos": "positive"}.
    """
    if isinstance(model, Model) and precision is not None:
        raise InputError("precision goes with a model's folder; this model is loaded. Use weft.load(…, precision=…).")
    loaded = model if isinstance(model, Model) else load(model, task=task, precision=precision)
    paths, known = _as_paths(data), _as_paths(train)
    if not paths:
        raise InputError("Give at least one file to evaluate on.")
    named = [f"{role}={column}" for role, column in columns.items()] if isinstance(columns, Mapping) else columns
    pairs = as_items(named, "columns")
    if limit_bytes is not None and (not isinstance(limit_bytes, int) or limit_bytes < 1):
        raise InputError(f"--limit-bytes is a number of bytes, at least 1, not {limit_bytes!r}.")
    if labels and shots is None:
        raise InputError("--label is for prompts: it goes with --shots.")
    if shots is None and task is None and loaded.task is None and language_head(loaded.network) is not None:
        useless = {"--column": pairs, "--output": output}
        if wrong := [name for name, value in useless.items() if value]:
            raise InputError(f"{wrong[0]} goes with a task, and {_name(loaded)} is a language model. See --task.")
        return _evaluate_text(loaded, paths, known, encoding, format, limit_bytes)
    if limit_bytes is not None:
        raise InputError("--limit-bytes goes with the text of a language model, not with a task's examples.")
    where = None if output is None else Path(output)
    if shots is None:
        return evaluate_task(loaded.for_task(task), paths, known, pairs, encoding, format, where)
    words = label_options(labels)
    return evaluate_prompted(loaded, paths, known, pairs, encoding, format, where, task=task, shots=shots, words=words)


def print_evaluation(results: dict[str, Any], *, as_json: bool) -> None:
    if "task" in results:
        print_judged(results, as_json=as_json)
        return
    if not as_json:
        print(results["verdict"], end="\n\n")
        spread = results["intervals"]
        figures = {
            name: rounded(name, value) + (f" ({interval_text(name, spread[name])})" if name in spread else "")
            for name, value in results["figures"].items()
        }
        kept = ("window", "baseline", "cost", "data", "model")
        results = {**figures, **{key: results[key] for key in kept if key in results}}
    print_facts(results, as_json)


def _evaluate_text(
    model: Model,
    paths: list[Path],
    train: list[Path],
    encoding: str | None,
    format: str | None,
    limit_bytes: int | None,
) -> dict[str, Any]:
    chosen = reading_in(format)
    reading = Reading(encoding=encoding or "utf-8", format=chosen.format if chosen else None)
    began = time.perf_counter()
    with standard_input_as_file([held_out_part(path) for path in paths], format) as found:
        listing = list_files(found, reading.format)
        listing.say_passed_over()
        try:
            scores = score_texts(
                model.network,
                model.tokenizer,
                lambda: _limited(listing.files, reading, limit_bytes),
                (lambda: _limited(train, reading, None)) if train else None,
                _trained_length(model),
                model.results.get("objective"),
            )
        except RecipeError as error:  # the tokenizer has no mask token, or no sentinels
            raise InputError(f"{_name(model)}: {error} To evaluate it at a task, name the task with --task.") from None
    seconds = time.perf_counter() - began
    verdict = _verdict(scores, len(listing.files))
    results = {
        "model": None if model.folder is None else str(model.folder),
        "data": [str(path) for path in paths],
        "verdict": verdict,
        "kind": scores.kind,
        "figures": scores.figures,
        "intervals": {name: [interval.low, interval.high] for name, interval in scores.intervals.items()},
        "tokens": scores.tokens,
        "files": len(listing.files),
        "bytes": scores.bytes,
        "characters": scores.characters,
        "window": scores.window,
        "cost": {"seconds": round(seconds, 2), "tokens_per_second": round(scores.tokens / max(seconds, 1e-9), 1)},
    }
    return {**results, "baseline": scores.baseline} if scores.baseline else results


def _trained_length(model: Model) -> int | None:
    length = model.results.get("sequence_length")
    return length if isinstance(length, int) and length > 1 else None


def _verdict(scores: TextScores, files: int) -> str:
    """perplexity 23.4 (22.9–23.9) · 1.23 bits per byte on 12,345 tokens of 3 files"""
    first = "loss" if scores.kind == "seq2seq" else next(iter(scores.figures))
    second = {"causal": "bits_per_byte", "masked": "loss"}.get(scores.kind)
    line = f"{first} {rounded(first, scores.figures[first])}"
    if interval := scores.intervals.get(first):
        line += f" ({interval_text(first, (interval.low, interval.high))})"
    if second == "bits_per_byte":
        line += f" · {scores.figures[second]:.2f} bits per byte"
    elif second is not None:
        line += f" · {second} {rounded(second, scores.figures[second])}"
    line += f" on {scores.tokens:,} {_SCORED[scores.objective]} of {files:,} file{'' if files == 1 else 's'}"
    metric = {"causal": "perplexity", "masked": "accuracy"}.get(scores.kind, "")
    if metric in scores.baseline:
        line += f"; {scores.baseline['name']} {rounded(metric, scores.baseline[metric])}"
    return line


def _limited(files: Sequence[Path], reading: Reading, most_bytes: int | None) -> Iterator[str]:
    left = most_bytes
    for document in read_documents(files, reading):
        if left is not None and left <= 0:
            return
        text = document.text
        if left is not None:
            whole = text.encode("utf-8", "surrogatepass")
            text, left = whole[:left].decode("utf-8", "ignore"), left - len(whole)
        yield text


def _as_paths(given: PathOrPaths) -> list[Path]:
    listed = [given] if isinstance(given, str | Path) else as_items(given, "What to read")
    return [as_path(one, "What to read") for one in listed]


def _name(model: Model) -> str:
    return "this model" if model.folder is None else str(model.folder)
