"""How one vector per text is made. Sentence-embedding folders (sentence-transformers') say it in files of their own,
which are kept to the byte so that a saved copy still says the same.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.errors import FolderError
from weft.folders import read_json

FILES = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json")
KINDS: dict[str, Literal["mean", "first", "last"]] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True)
class Pooling:
    kind: Literal["mean", "first", "last"] = "mean"
    normalize: bool = False  # to length 1
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


def read_pooling(folder: Path) -> Pooling:
    """The folder's own way; the plain mean if it does not say."""
    if not (folder / "modules.json").is_file():
        return Pooling()
    files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    settings = read_json(folder / "1_Pooling/config.json") if "1_Pooling/config.json" in files else {}
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode") and value is True]
    if len(chosen) > 1 or set(chosen) - set(KINDS):
        raise FolderError(f"{folder}/1_Pooling/config.json: only {', '.join(KINDS)} are supported, one at a time.")
    return Pooling(KINDS[chosen[0]] if chosen else "mean", b"models.Normalize" in files["modules.json"], files)
