"""Exports a model: refused with a sentence, or written atomically, opened in its runtime and compared with weft."""

import copy
import glob
import importlib.util
import math
from dataclasses import replace
from pathlib import Path, PurePath

import torch

from weft.api.model import Model
from weft.errors import FolderError, InputError, as_path, check_encodable, needs, suggest
from weft.exports.catalog import find_target
from weft.exports.target import Comparison, ExportResult, ExportTarget
from weft.folders import MANIFEST, check_place, known_facts, manifest, replace_folder, to_json
from weft.interchange.quantized_entries import why_not_fp32
from weft.version import VERSION

_COPIED_FACTS = ("recipe", "task", "results")
_NOT_FINITE = "Outputs hold NaN or infinity, in weft or in the export: do not rely on either."


def export_model(
    model: Model, to: str, folder: str | Path, *, precision: str | None = None, compare: bool = True
) -> ExportResult:
    """Writes the model for another program: `export_model(model, "gguf", "exported", precision="q8_0")`.

    `to`: onnx, ctranslate2 or gguf. `precision`: default: fp32. Raises InputError with the reason if the
    target cannot take the model.
    """
    if not isinstance(model, Model):
        raise InputError(f"The model is one that weft.load or weft.create gives, not {type(model).__name__}.")
    target, place = find_target(to), check_place(as_path(folder, "The folder"), mark=MANIFEST)
    check_encodable(str(place), "The folder's name")  # the runtimes open no other
    before = _exported_before(place)
    precision = target.precisions[0] if precision is None else precision
    if precision not in target.precisions:
        precisions = ", ".join(target.precisions)
        hint = suggest(precision, target.precisions)
        raise InputError(f"{target.title} has no {precision}{hint}. It has: {precisions}.")
    if reason := why_not_fp32(model.network, model.facts) or _broken(model) or target.why_not(model, precision):
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
    names = [part for name in files for part in PurePath(name).parts[:1]] if isinstance(files, dict) else []
    return tuple(glob.escape(name) for name in names)


def _broken(model: Model) -> str | None:
    """Why no program can use the weights, as a sentence."""
    for name, weight in model.network.named_parameters():
        if weight.is_meta:
            return "its weights are not loaded."
        if not torch.isfinite(weight).all():
            return f"{name} holds NaN or infinity."
    return None


def _compared(target: ExportTarget, model: Model, folder: Path, precision: str) -> Comparison | None:
    if importlib.util.find_spec(target.runtime) is None:
        return None
    found = target.compare(_in_float32(model), folder, precision)
    if all(value is None or math.isfinite(value) for value in (found.logits, found.scale)):
        return found
    return replace(found, logits=None, scale=None, notes=(*found.notes, _NOT_FINITE))


def _in_float32(model: Model) -> Model:
    """The model as exports compute it: without dropout, and not rounded to 16 bits after each layer."""
    network = model.network
    is_single = all(parameter.dtype == torch.float32 for parameter in network.parameters())
    if is_single and not any(module.training for module in network.modules()):
        return model
    changed = copy.copy(model)
    changed.network = copy.deepcopy(network).float().eval()
    return changed
