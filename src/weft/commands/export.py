"""`weft export` and `weft import`."""

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
    return f"Runs in {found.runtime}: {'; '.join(parts)}." if parts else f"Written for {found.runtime}."


def import_file(file: str | Path, output: str | Path) -> dict[str, Any]:
    """Writes the model of a GGUF file as a folder that `weft.load` opens. Returns facts about it."""
    needs("gguf", "gguf", "to read GGUF files")
    from weft.exports.gguf.read import import_gguf

    return import_gguf(as_path(file, "The file"), as_path(output, "The folder"))
