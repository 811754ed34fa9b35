"""`weft export` and `weft import`."""

import importlib.util
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from weft.api.model import load
from weft.errors import as_path, needs, refuse_address
from weft.exports.run import export_model
from weft.exports.target import Comparison


def export_folder(
    model: Path, to: str, output: Path, precision: str | None, *, compare: bool
) -> tuple[dict[str, Any], str]:
    """What was written, as facts to print, and a command that uses it."""
    refuse_address(output)  # before the model is read
    result = export_model(load(model, "cpu"), to, output, precision=precision, compare=compare)
    facts = {
        "verdict": verdict_of(result.comparison, asked=compare),
        "export": str(result.folder),
        "target": result.target,
        "precision": result.precision,
        "megabytes": result.megabytes,
        "compared": None if result.comparison is None else result.comparison.facts(),
        **result.facts,
    }
    return {key: value for key, value in facts.items() if value is not None}, result.next_step


def shown_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """For people, of the comparison only what the verdict does not say."""
    return {**facts, "compared": (facts.get("compared") or {}).get("notes")}


def steps_here(step: str) -> list[tuple[str, str]]:
    """What to do on this machine: each a hint and a command. `step` may need a program that is not installed."""
    words = shlex.split(step)
    steps = [("", step)]
    if words[0].startswith("llama-") and shutil.which(words[0]) is None:
        steps = [(f"{words[0]} comes with llama.cpp: https://github.com/ggml-org/llama.cpp.", step)]
        if words[0] == "llama-server" and importlib.util.find_spec("xllamacpp") is not None:
            steps = [
                (
                    "llama-server is not installed; its Python package is.",
                    _python_server(words[2], "--embedding" in words),
                )
            ]
    if words[0] == "llama-server":
        route, body = ("completion", {"prompt": "Once upon a time", "n_predict": 40})
        if "--embedding" in words:
            route, body = ("embedding", {"content": "Once upon a time"})
        asked = f"curl http://127.0.0.1:8080/{route} -d {shlex.quote(json.dumps(body))}"
        steps.append(("While it runs, in another terminal.", asked))
    return steps


def _python_server(file: str, is_embedding: bool) -> str:
    lines = ["import xllamacpp as llama", "settings = llama.CommonParams()"]
    lines += [f"settings.model.path = {json.dumps(file, ensure_ascii=False)}", "settings.port = 8080"]
    lines += ["settings.embedding = True"] if is_embedding else []
    lines += ["server = llama.Server(settings)", 'input("Enter stops it.")']
    return f"python -c {shlex.quote('; '.join(lines))}"


def verdict_of(found: Comparison | None, *, asked: bool) -> str:
    """How near the export is to weft, in one sentence."""
    if found is None:
        return "Written. Not compared with weft: its runtime is not installed." if asked else "Written. Not compared."
    parts = []
    if found.logits is not None:
        scale = "" if found.scale is None else f" (the largest is {found.scale:.3g})"
        parts.append(f"outputs differ from weft's by at most {found.logits:.2g}{scale}")
    if found.same_tokens is not None:
        parts.append(f"{found.same_tokens:.0%} of the greedy tokens are equal")
    if not parts:
        return f"Written. Not compared with weft in {found.runtime}: see the notes."
    return f"Runs in {found.runtime}: {'; '.join(parts)}."


def import_file(file: str | Path, output: str | Path) -> dict[str, Any]:
    """Writes the model of a GGUF file as a folder that `weft.load` opens. Returns facts about it."""
    needs("gguf", "gguf", "to read GGUF files")
    from weft.exports.gguf.read import import_gguf

    return import_gguf(as_path(file, "The file"), as_path(output, "The folder"))
