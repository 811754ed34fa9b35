"""Pooling of hidden states to one vector per text, as sentence-transformers folders configure it.

Such a folder lists modules: the model, a pooling, optionally a normalisation to length 1. Other modules would change
the vectors, so they are refused by name. The files are kept byte by byte for saved copies.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from weft.errors import FolderError
from weft.folders import read_json, to_json

POOLING_FILES = (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
PoolingKind = Literal["mean", "first", "last"]
# Before version 5: a flag per kind. Since then: one name.
_POOLING_KINDS: dict[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
    "mean": "mean",
    "cls": "first",
    "lasttoken": "last",
}
_FLAGS = {kind: key for key, kind in _POOLING_KINDS.items() if key.startswith("pooling_mode")}


@dataclass(frozen=True)
class Pooling:
    kind: PoolingKind = "mean"
    normalize: bool = False  # to length 1
    most_tokens: int | None = None
    files: dict[str, bytes] = field(default_factory=dict, repr=False)

    def to_files(self, width: int) -> dict[str, bytes]:
        """A folder with these files opens in sentence-transformers."""
        modules = ["Transformer", "Pooling", *(["Normalize"] if self.normalize else [])]
        listed = [
            {
                "idx": number,
                "name": str(number),
                "path": f"{number}_{kind}" if number else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, kind in enumerate(modules)
        ]
        flags = {key: key == _FLAGS[self.kind] for key in _FLAGS.values()}
        limits = {"max_seq_length": self.most_tokens, "do_lower_case": False}
        found = {
            "modules.json": listed,
            "1_Pooling/config.json": {"word_embedding_dimension": width, **flags},
            "sentence_bert_config.json": limits,
            "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
        }
        return {name: to_json(content) for name, content in found.items()}


def read_pooling(folder: Path) -> Pooling:
    """The folder's pooling. Default: the mean."""
    if not (folder / "modules.json").is_file():
        return Pooling()
    modules = _read_modules(folder / "modules.json")
    if modules[:1] != ["Transformer"] or set(modules[1:]) - {"Pooling", "Normalize"}:
        raise FolderError(f"{folder / 'modules.json'}: the modules {' + '.join(modules)} are not supported.")
    files = {name: (folder / name).read_bytes() for name in POOLING_FILES if (folder / name).is_file()}
    limit = _optional(folder / "sentence_bert_config.json").get("max_seq_length")
    kind = _read_kind(folder / "1_Pooling/config.json") if "Pooling" in modules else "mean"
    return Pooling(kind, "Normalize" in modules, limit if isinstance(limit, int) and limit > 0 else None, files)


def _read_modules(file: Path) -> list[str]:
    try:
        return [str(module["type"]).rpartition(".")[2] for module in json.loads(file.read_bytes())]
    except (ValueError, KeyError, TypeError):
        raise FolderError(f"{file} is not a list of modules.") from None


def _read_kind(file: Path) -> PoolingKind:
    settings = _optional(file)
    named = settings.get("pooling_mode")
    chosen = (
        [named] if isinstance(named, str) else [key for key, on in settings.items() if on is True and "mode" in key]
    )
    if not chosen:
        return "mean"
    if len(chosen) > 1 or chosen[0] not in _POOLING_KINDS:
        raise FolderError(f"{file}: pooling by {', '.join(chosen)} is not supported; mean, cls and last token are.")
    return _POOLING_KINDS[chosen[0]]


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}
