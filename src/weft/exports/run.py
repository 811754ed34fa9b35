"""Exports a model: refused with a sentence, or written atomically, opened in its runtime and compared with weft."""

import importlib.util
from pathlib import Path

from weft.api.model import Model
from weft.errors import FolderError, InputError, as_path, needs, suggest
from weft.exports.catalog import find_target
from weft.exports.target import Comparison, ExportResult, ExportTarget
from weft.folders import MANIFEST, check_place, known_facts, manifest, replace_folder, to_json
from weft.version import VERSION

_COPIED_FACTS = ("recipe", "task", "results")


def export_model(
    model: Model, to: str, folder: str | Path, *, precision: str | None = None, compare: bool = True
) -> ExportResult:
    """Writes the model for another program: `export_model(model, "gguf", "exported", precision="q8_0")`.

    `to`: onnx, ctranslate2 or gguf. `precision`: default: fp32. Raises InputError with the reason if the
    target cannot take the model.
    """
    target, place = find_target(to), check_place(as_path(folder, "The folder"), mark=MANIFEST)
    before = _exported_before(place)
    precision = target.precisions[0] if precision is None else precision
    if precision not in target.precisions:
        precisions = ", ".join(target.precisions)
        hint = suggest(precision, target.precisions)
        raise InputError(f"{target.title} has no {precision}{hint}. It has: {precisions}.")
    if reason := target.why_not(model, precision):
        raise InputError(f"This {model.family} cannot be exported to {target.title}: {reason}")
    for package in target.packages:
        needs(package, target.name, f"to write {target.title}")
    with replace_folder(place, mark=MANIFEST, ours=before) as new:
        facts = target.write(model, new, precision)
        found = _compared(target, model, new, precision) if compare else None
        known = {
            "weft": VERSION,
            "kind": "export",
            "target": target.name,
            "precision": precision,
            "family": model.family,
            "model": model.folder.name if model.folder is not None else None,
            **{key: model.facts[key] for key in _COPIED_FACTS if key in model.facts},
            **facts,
            "compared": None if found is None else found.facts(),
        }
        (new / MANIFEST).write_bytes(to_json(manifest(new, **known)))
        size = sum(file.stat().st_size for file in new.rglob("*") if file.is_file()) / 1e6
    return ExportResult(place, target.name, precision, round(size, 2), found, target.next_step(model, place), facts)


def _exported_before(place: Path) -> tuple[str, ...]:
    """The files of an earlier export there, which this one replaces."""
    facts = known_facts(place)
    if facts and facts.get("kind") != "export":
        raise FolderError(f"{place} is a {facts.get('kind', 'folder')} of weft. Choose a new folder for the export.")
    files = facts.get("files")
    return tuple(name.partition("/")[0] for name in files) if isinstance(files, dict) else ()


def _compared(target: ExportTarget, model: Model, folder: Path, precision: str) -> Comparison | None:
    if importlib.util.find_spec(target.runtime) is None:
        return None
    return target.compare(model, folder, precision)
