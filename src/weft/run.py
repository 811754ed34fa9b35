"""`weft run`: the whole recipe, stages like `make`. What is done and still true is skipped, what was stopped goes on,
what is out of date (another recipe, other bytes in its inputs) is done anew; its old folder is moved aside, not lost.
"""

import hashlib
from pathlib import Path
from typing import Any

from weft.errors import FolderError, RecipeError
from weft.folders import MANIFEST, changed_files, read_json, sha256_of
from weft.progress import say
from weft.recipe import Recipe

MODEL = "model"


def run(recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    if recipe.pretrain is None:
        raise RecipeError("The recipe has no stage to run. Give it a pretrain section.")
    from weft.train.pretrain import pretrain

    inputs = _fingerprint(recipe, base)
    known = _state(folder)
    if known and (known.get("asked") != recipe.model_dump(exclude_none=True) or known.get("inputs") != inputs):
        aside = next(
            new for n in range(1, 10**6) if not (new := folder.with_name(f"{folder.name}.before-{n}")).exists()
        )
        folder.rename(aside)
        say(f"pretrain: out of date; the old run is now {aside}.")
        known = {}
    if "results" in known and _is_whole(folder / MODEL):
        say("pretrain: up to date.")
        return known["results"]
    if not known:
        folder.mkdir(parents=True, exist_ok=True)
    return pretrain(recipe, base, folder, resume=bool(known), inputs=inputs)


def _state(folder: Path) -> dict[str, Any]:
    return read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}


def _is_whole(model: Path) -> bool:
    try:
        return not changed_files(model)
    except FolderError:
        return False


def _fingerprint(recipe: Recipe, base: Path) -> str:
    """Of everything that the recipe reads: names and bytes."""
    corpus = recipe.corpus
    paths = [source.path for source in corpus.sources or ()] if corpus is not None else []
    paths += [section.path for section in (corpus, recipe.tokenizer, recipe.model) if section and section.path]
    digest = hashlib.sha256()
    for path in paths:
        place = base / path
        files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
        for file in files:
            digest.update(f"{path}\0{file.name}\0{sha256_of(file) if file.is_file() else ''}\0".encode())
    return digest.hexdigest()
