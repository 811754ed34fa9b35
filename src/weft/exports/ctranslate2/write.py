"""Writes the folder: the model, token strings, heads, tokenizer, README."""

from pathlib import Path
from typing import Any

from weft.api.model import Model
from weft.exports.ctranslate2.assemble import assembled
from weft.exports.ctranslate2.heads import head_files, pooler_of
from weft.exports.ctranslate2.readme import README_FILE, export_notes, readme_text, runner_name
from weft.exports.ctranslate2.vocabulary import token_strings

_QUANTIZATIONS = {"fp32": "float32", "int8": "int8", "f16": "float16"}


def write_ctranslate2(model: Model, folder: Path, precision: str) -> dict[str, Any]:
    strings = token_strings(model)
    spec = assembled(model.network, strings, pooler_of(model.network))
    spec.validate()
    spec.optimize(_QUANTIZATIONS[precision])
    spec.save(str(folder))
    files = _tokenizer_files(model) | model.pooling.files | _generation_file(model) | head_files(model, precision)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    notes = export_notes(model, strings, precision)
    written = sorted(file.name for file in folder.iterdir())
    (folder / README_FILE).write_text(readme_text(model, strings, precision, written, notes), "utf-8")
    return {"runs_in": f"ctranslate2.{runner_name(model)}", "notes": notes}


def _tokenizer_files(model: Model) -> dict[str, bytes]:
    """Always with a tokenizer.json, which the README's program reads."""
    if model.own_tokenizer is None:
        return {}
    return {"tokenizer.json": model.own_tokenizer.engine.to_str().encode(), **model.own_tokenizer.saved_files()}


def _generation_file(model: Model) -> dict[str, bytes]:
    return {name: data for name, data in model.config_files().items() if name == "generation_config.json"}
