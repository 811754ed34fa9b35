"""The folder of a run: whose it is, what was planned, what came out."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from weft.errors import FolderError, RecipeError
from weft.folders import (
    MANIFEST,
    changed_files,
    disk_errors,
    known_facts,
    locked,
    read_json,
    sha256_of,
    to_json,
    write_file,
)
from weft.progress import say
from weft.recipe.file import read_recipe
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan
from weft.recipe.recipe import Recipe
from weft.sources.documents import find_files
from weft.train.checkpoints import CHECKPOINTS, list_checkpoints
from weft.train.plan.run_plan import RunPlan
from weft.version import VERSION

RESOLVED_RECIPE, MODEL, CORPUS, _LOCK_FILE = "recipe.yml", "model", "corpus", ".lock"
BEFORE = (CORPUS, f".{CORPUS}.work")  # what may be there before a run is: `weft corpus` with the same recipe


def seed_folder(folder: Path, seed: int) -> Path:
    """Of one of several runs of the same recipe."""
    return folder / f"seed-{seed}"


def read_run(folder: Path) -> dict[str, Any]:
    """What its weft.json says; nothing, if it has none."""
    facts = known_facts(folder)
    if facts and facts.get("kind") != "run":
        raise FolderError(f"{folder} holds a {facts.get('kind', 'thing')}, not a run. Choose another folder with -o.")
    return facts


@contextmanager
def claim(folder: Path, recipe: Recipe, base: Path, *, resume: bool) -> Iterator[None]:
    """Make it ours until the block ends, or say why not: it holds another run or somebody's files, or another process
    is at work in it.
    """
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; a run needs a folder.")
    if not read_run(folder):
        _check_is_free(folder)
    with locked_run(folder):
        _begin(folder, recipe, base, resume=resume)
        yield


@contextmanager
def locked_run(folder: Path) -> Iterator[None]:
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK_FILE, f"{folder} is in use by another run."):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no file that is open
                (folder / _LOCK_FILE).unlink(missing_ok=True)


def _check_is_free(folder: Path) -> None:
    """Before anything is written to it."""
    ours = (*BEFORE, _LOCK_FILE)
    if folder.is_dir() and any(
        item.name not in ours and not item.name.startswith(f".{MANIFEST}.") for item in folder.iterdir()
    ):
        raise FolderError(f"{folder} holds other things. Choose a new or empty folder with -o.")


def _begin(folder: Path, recipe: Recipe, base: Path, *, resume: bool) -> None:
    asked = recipe.given_settings()
    if known := read_run(folder):
        earlier = known.get("asked")
        if resume and earlier != asked:
            raise RecipeError(f"{folder} is a run of another recipe: {_difference(earlier, asked)}. Choose another -o.")
        # Pre-training goes on with the tokens it has; a task reads its rows again.
        if resume and recipe.finetune is not None and known.get("inputs") != fingerprint(recipe, base):
            raise RecipeError(
                f"{folder} was begun with other files: what finetune.data or finetune.model names has changed since. "
                "Choose another -o."
            )
        steps = [step for place in (folder, *folder.glob("seed-*")) for step in list_checkpoints(place / CHECKPOINTS)]
        if not resume and (steps or (folder / MODEL).exists()):
            at = f" at step {max(steps):,}" if steps else ""
            raise FolderError(f"{folder} holds a run already{at}: --resume goes on with it, or choose another -o.")
    elif resume:
        say(f"{folder} holds nothing to go on from; starting.")
    for pattern in (f"{CHECKPOINTS}/.step-*", f"seed-*/{CHECKPOINTS}/.step-*"):
        for killed in folder.glob(pattern):  # in the middle of its save; nobody else writes here
            shutil.rmtree(killed, ignore_errors=True)
    if not resume or not (folder / MANIFEST).is_file():
        (folder / RESOLVED_RECIPE).unlink(missing_ok=True)  # of a run that was stopped before its first checkpoint
        for made in ("tokenizer", "tokens"):  # of another corpus, perhaps
            shutil.rmtree(folder / made, ignore_errors=True)
        facts = {"weft": VERSION, "kind": "run", "asked": asked, "inputs": fingerprint(recipe, base)}
        write_file(folder / MANIFEST, to_json(facts))


def save_run_plan(folder: Path, recipe: Recipe, base: Path, model: ModelSection, plan: PretrainPlan) -> None:
    """The recipe as it is carried out. Its paths are absolute, so that it can be run from here as well."""
    tree = recipe.model_copy(update={"pretrain": plan}).given_settings()
    tree["model"] = {"path": model.path} if model.path is not None else model.settings()
    write_resolved_recipe(folder, tree, base)


def write_resolved_recipe(folder: Path, tree: dict[str, Any], base: Path) -> None:
    """A recipe's values as they were settled, with absolute paths."""
    corpus = tree.get("corpus", {})
    tests = (corpus.get("build", {}).get("decontaminate") or {}).get("against", ())
    sections = (corpus, tree.get("tokenizer", {}), tree.get("model", {}), *corpus.get("sources", ()), *tests)
    for section in sections:
        if "path" in section and "://" not in section["path"]:
            section["path"] = _absolute(section["path"], base)
    tuned = tree.get("finetune", {})
    if isinstance(tuned.get("model"), str):
        tuned["model"] = _absolute(tuned["model"], base)
    data = tuned.get("data", {})
    for split in ("train", "validation", "test"):
        if split in data:
            said = data[split]
            data[split] = _absolute(said, base) if isinstance(said, str) else [_absolute(path, base) for path in said]
    write_file(folder / RESOLVED_RECIPE, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode())


def _absolute(path: str, base: Path) -> str:
    """A part of an archive, archive::part, is named by both."""
    file, mark, part = path.partition("::")
    return str((base / file).resolve()) + mark + part


def load_run_plan(folder: Path, model: ModelSection) -> RunPlan | None:
    """What a run that goes on was planned to do, in steps; none if it was stopped before that was known."""
    if not (folder / RESOLVED_RECIPE).is_file():
        return None
    recipe = read_recipe(folder / RESOLVED_RECIPE)
    assert recipe.model is not None and recipe.pretrain is not None
    plan = PretrainPlan(**recipe.pretrain.model_dump(exclude_none=True))
    return RunPlan(model if model.path is not None else recipe.model, plan)


def finished(folder: Path) -> dict[str, Any] | None:
    """What came out, if the run is done and its model whole."""
    known = read_run(folder)
    try:
        return known["results"] if "results" in known and not changed_files(folder / MODEL) else None
    except FolderError:
        return None


def finish(folder: Path, results: dict[str, Any]) -> None:
    facts = read_json(folder / MANIFEST)
    write_file(folder / MANIFEST, to_json({**facts, "results": results}))


def fingerprint(recipe: Recipe, base: Path) -> str:
    """Of everything that the recipe reads: names and bytes."""
    corpus = recipe.corpus
    paths = [source.path for source in corpus.sources or ()] if corpus is not None else []
    if corpus is not None and corpus.build is not None and corpus.build.decontaminate is not None:
        paths += [entry.path for entry in corpus.build.decontaminate.against]
    paths += [section.path for section in (corpus, recipe.tokenizer, recipe.model) if section and section.path]
    if recipe.finetune is not None:
        paths += [recipe.finetune.model] if isinstance(recipe.finetune.model, str) else []
        said = (getattr(recipe.finetune.data, split) for split in ("train", "validation", "test"))
        listed = (path for one in said if one is not None for path in ([one] if isinstance(one, str) else one))
        paths += [path.partition("::")[0] for path in listed]
    digest = hashlib.sha256()
    for path in paths:
        for file in _files_at(base / path) if "://" not in path else ():
            digest.update(f"{path}\0{os.path.relpath(file, base)}\0{sha256_of(file)}\0".encode())
    return digest.hexdigest()


def _files_at(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*") if file.is_file())
    return [place] if place.is_file() else find_files([place])  # a pattern


def _difference(earlier: Any, now: Any, path: str = "") -> str:
    """The first setting that is not the same, in words."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in [*earlier, *now]:
            if earlier.get(key) != now.get(key):
                return _difference(earlier.get(key), now.get(key), f"{path}.{key}" if path else key)
    return f"{path or 'it'} was {earlier!r} and is {now!r}"
