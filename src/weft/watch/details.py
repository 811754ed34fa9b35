"""Everything about one run: recipe, plan beside what happened, where it comes from, checkpoints, samples, log."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.train.budget import read_budget
from weft.watch.curves import RunCurves, TextSample, projected
from weft.watch.finding import FoundFolder
from weft.watch.log_lines import log_end
from weft.watch.plain_files import bounded_copy, finite, open_plain, read_at, read_object, shown_text, told_text
from weft.watch.run import CHECKPOINTS_NAME, MODEL_NAME, WatchedRun, flat_settings

PARTS = ("facts", "recipe", "plan", "lineage", "checkpoints", "samples", "log")
_LOG_LINES = 200
_MOST_SAMPLE_LETTERS = 200_000
_MOST_FILES = 200  # of a folder
_MOST_HEADER = 20_000_000
_MOST_WEIGHTS = 10**15  # of a tensor
_PLACES = {  # settings that name files or folders, by what they are
    "corpus": re.compile(r"corpus(\.sources\.\d+)?\.path"),
    "tokenizer": re.compile(r"tokenizer\.path"),
    "model": re.compile(r"model\.path|finetune\.model"),
    "data": re.compile(r"finetune\.data\.(train|validation|test)"),
}
FindId = Callable[[Path], str | None]


def run_details(run: WatchedRun, curves: RunCurves, find_id: FindId, parts: Iterable[str] = PARTS) -> dict[str, Any]:
    """`find_id`: the id of a folder that is watched, too."""
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "facts": lambda: _facts(run),
        "recipe": lambda: {"recipe_text": run.recipe, "settings": run.settings},
        "plan": lambda: {"plan": _plan(run, curves)},
        "lineage": lambda: {"lineage": _lineage(run, find_id)},
        "checkpoints": lambda: {"checkpoints": _checkpoints(run)},
        "samples": lambda: {"samples": _samples(curves.samples)},
        "log": lambda: _log(run),
    }
    found: dict[str, Any] = {}
    for part in parts:
        found |= makers[part]()
    return found


def folder_details(found: FoundFolder, facts: dict[str, Any], find_id: FindId) -> dict[str, Any]:
    """Of a corpus, tokenizer, model or report: what its weft.json says, where it comes from, its files with hashes."""
    recipe, files = facts.get("recipe"), facts.get("files")
    listed = list(files.items())[:_MOST_FILES] if isinstance(files, dict) else []
    return {
        "id": found.id,
        "kind": found.kind,
        "name": found.name,
        "folder": shown_text(str(found.folder), 1_000),
        "has_report": found.has_report,
        "facts": bounded_copy({key: value for key, value in facts.items() if key != "files"}),
        "files": bounded_copy([{"name": name, **(one if isinstance(one, dict) else {})} for name, one in listed]),
        "lineage": _places(flat_settings(recipe), find_id),
    }


def _facts(run: WatchedRun) -> dict[str, Any]:
    return {
        "weft": told_text(run.facts.get("weft", ""), 40),
        "folder": shown_text(str(run.found.folder), 1_000),
        "asked": bounded_copy(run.asked),
        "inputs": told_text(run.facts.get("inputs", ""), 100),
        "results": bounded_copy(run.results),
    }


def _plan(run: WatchedRun, curves: RunCurves) -> list[dict[str, Any]]:
    """Rows of what was planned, what happened so far, and what is expected at the end."""
    last, steps, settings = run.glance.found.last, run.steps, run.settings
    step, seconds, tokens = (finite(last.get(name)) for name in ("step", "seconds", "tokens"))
    rate = run.glance.found.steps_per_second
    is_over = run.state == "finished"
    left = (steps - step) / rate if steps and step is not None and rate and not is_over else None
    batch = finite(_integer(settings.get("pretrain.batch_tokens")))
    end_tokens = float(tokens) * steps / step if steps and step and tokens else None
    rows = [
        {"what": "steps", "first": run.log.steps_at_first, "planned": steps, "actual": step, "expected": steps},
        {
            "what": "tokens",
            "planned": steps * batch if steps and batch and run.stage == "pretrain" else None,
            "actual": tokens,
            "expected": end_tokens,
        },
        {
            "what": "seconds",
            "planned": _budget_seconds(run),
            "actual": seconds,
            "expected": seconds + left if seconds is not None and left is not None else None,
        },
        _loss_row(run, curves, end_tokens),
    ]
    # Absurd figures of a file that is not weft's can lead to infinite ones, which JSON does not have.
    told = [{name: one if name == "what" else finite(one) for name, one in row.items()} for row in rows]
    return [{**row, "expected": None} for row in told] if is_over else told


def _loss_row(run: WatchedRun, curves: RunCurves, end_tokens: float | None) -> dict[str, Any]:
    """weft plans no loss. What it must beat is the n-gram baseline; where it is going, its own curve tells."""
    x, y = curves.points("validation_loss", "tokens")
    perplexity = _figure(run, "by_counting", "perplexity")
    final = _figure(run, "validation", "validation_loss")
    return {
        "what": "validation_loss",
        "baseline": math.log(perplexity) if perplexity and perplexity > 0 else None,
        "actual": final if final is not None else finite(run.glance.found.validation.get("validation_loss")),
        "expected": projected(x, y, end_tokens) if end_tokens else None,
    }


def _figure(run: WatchedRun, section: str, name: str) -> float | None:
    found = run.results.get(section)
    return finite(found.get(name)) if isinstance(found, dict) else None


def _budget_seconds(run: WatchedRun) -> float | None:
    section = run.asked.get(run.stage)
    told = section.get("budget") if isinstance(section, dict) else None
    try:
        budget = read_budget(str(told))
    except RecipeError:
        return None
    return budget.amount if budget.kind == "seconds" else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.isascii() and text.isdigit() else None


def _lineage(run: WatchedRun, find_id: FindId) -> list[dict[str, Any]]:
    """What the run reads and what it has written, with the ids of those that are watched, too."""
    rows = _places(run.settings, find_id)
    written = run.found.folder / MODEL_NAME
    if run.model:
        files = run.model.get("files")
        weights = files.get("model.safetensors") if isinstance(files, dict) else None
        digest = weights.get("sha256") if isinstance(weights, dict) else None
        rows.append(
            {
                "role": "written",
                "setting": MODEL_NAME,
                "path": shown_text(str(written), 1_000),
                "id": find_id(written),
                "sha256": told_text(digest, 64) if digest else None,
            }
        )
    return rows


def _places(settings: dict[str, str], find_id: FindId) -> list[dict[str, Any]]:
    """The files and folders that a recipe names."""
    return [
        {"role": role, "setting": key, "path": value, "id": find_id(Path(value))}
        for role, names in _PLACES.items()
        for key, value in settings.items()
        if names.fullmatch(key)
    ]


def _checkpoints(run: WatchedRun) -> list[dict[str, Any]]:
    folder, found = run.found.folder / CHECKPOINTS_NAME, []
    best = None
    for step in run.checkpoints[-50:]:
        place = folder / f"step-{step:06}"
        state = read_object(place / "state.json")
        best = finite(state.get("best")) if state else best
        try:
            with os.scandir(place) as files:
                size = sum(file.stat(follow_symlinks=False).st_size for file in files)
            saved = place.stat().st_mtime
        except OSError:  # removed meanwhile: a newer one has taken its place
            continue
        found.append({"step": step, "bytes": size, "saved": saved, "best_loss": finite(state.get("best_loss"))})
    return [{**one, "best": one["step"] == best} for one in found]


def weight_count(run: WatchedRun) -> int | None:
    """From the header of the newest checkpoint, before a run has results."""
    for step in reversed(run.checkpoints[-3:]):
        file = run.found.folder / CHECKPOINTS_NAME / f"step-{step:06}" / "network.safetensors"
        try:
            with open_plain(file) as stream:
                length = int.from_bytes(read_at(stream, 0, 8), "little")
                header = json.loads(read_at(stream, 8, length)) if length <= _MOST_HEADER else {}
            shapes = [one["shape"] for name, one in header.items() if name != "__metadata__"]
            return sum(_product(shape) for shape in shapes)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return None


def _product(shape: list[int]) -> int:
    """Raises ValueError for what no network has: the product of a file's numbers can be of any length."""
    found = 1
    for side in shape:
        found *= int(side)
        if not 0 <= found < _MOST_WEIGHTS:
            raise ValueError
    return found


def _samples(samples: list[TextSample]) -> dict[str, Any]:
    """The newest, as many as may be sent, in the order of their steps."""
    kept: list[dict[str, Any]] = []
    left = _MOST_SAMPLE_LETTERS
    for one in reversed(samples):
        left -= len(one.text)
        if left < 0:
            break
        kept.append({"step": one.step, "text": one.text})
    return {"list": kept[::-1], "cut": len(kept) < len(samples)}


def _log(run: WatchedRun) -> dict[str, Any]:
    try:
        lines, is_cut = log_end(run.found.folder, _LOG_LINES)
    except OSError as error:
        return {"log": {"lines": [], "cut": False, "problem": f"train.log cannot be read: {error.strerror}."}}
    return {"log": {"lines": lines, "cut": is_cut}}
