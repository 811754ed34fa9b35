"""The folder of a run: its owner, its plan and its results."""

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
from weft.recipe.finetune import DataSection
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan
from weft.recipe.recipe import Recipe
from weft.sources.files import find_files
from weft.train.checkpoints import CHECKPOINTS, list_checkpoints
from weft.train.plan.run_plan import RunPlan
from weft.train.processes import Processes
from weft.version import VERSION

RESOLVED_RECIPE, MODEL, CORPUS, _LOCK_FILE = "recipe.yml", "model", "corpus", ".lock"
_BEFORE_A_RUN = (CORPUS, f".{CORPUS}.work")  # `weft corpus` with the same recipe may have written these


def seed_folder(folder: Path, seed: int) -> Path:
    """The folder of one of several runs that differ in their seed."""
    return folder / f"seed-{seed}"


def read_run(folder: Path) -> dict[str, Any]:
    """The run's weft.json; empty if there is none. Raises FolderError if the folder holds something else."""
    facts = known_facts(folder)
    if facts and facts.get("kind") != "run":
        raise FolderError(f"{folder} holds a {facts.get('kind', 'thing')}, not a run. Choose another folder with -o.")
    return facts


@contextmanager
def claim(
    folder: Path, recipe: Recipe, base: Path, *, resume: bool, processes: Processes | None = None
) -> Iterator[None]:
    """Own the folder until the block ends. The first process locks it; the others wait until it has.

    Raises FolderError if the folder holds other files, or another run is using it; RecipeError if it cannot be resumed.
    """
    processes = processes or Processes()
    if not processes.is_first:
        with processes.first_goes_ahead():
            pass
        yield
        return
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; a run needs a folder.")
    if not read_run(folder):
        _check_is_free(folder)
    with locked_run(folder):
        with processes.first_goes_ahead():  # hashing a large corpus may take an hour
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
    """Raises FolderError if the folder holds files that are not ours."""
    ours = (*_BEFORE_A_RUN, _LOCK_FILE)
    if folder.is_dir() and any(
        item.name not in ours and not item.name.startswith(f".{MANIFEST}.") for item in folder.iterdir()
    ):
        raise FolderError(f"{folder} holds other files. Choose a new or empty folder with -o.")


def _that_counts(settings: Any) -> Any:
    """Without what a run may change when it is resumed: how its processes share the work."""
    return {key: value for key, value in settings.items() if key != "processes"} if settings else settings


def _begin(folder: Path, recipe: Recipe, base: Path, *, resume: bool) -> None:
    asked = recipe.given_settings()
    if known := read_run(folder):
        earlier = known.get("asked")
        if resume and _that_counts(earlier) != _that_counts(asked):
            raise RecipeError(f"{folder} is a run of another recipe: {_difference(earlier, asked)}. Choose another -o.")
        # Pre-training resumes with the tokens in its folder; other stages read their data again.
        stages = {"distil.data or distil.teacher": recipe.distil, "finetune.data or finetune.model": recipe.finetune}
        reads = [files for files, section in stages.items() if section is not None]
        if resume and reads and known.get("inputs") != fingerprint(recipe, base):
            raise RecipeError(
                f"{folder} was started with other files: those of {reads[0]} have changed since. Choose another -o."
            )
        steps = [step for place in (folder, *folder.glob("seed-*")) for step in list_checkpoints(place / CHECKPOINTS)]
        if not resume and (steps or (folder / MODEL).exists()):
            at = f" at step {max(steps):,}" if steps else ""
            raise FolderError(f"{folder} holds a run already{at}: --resume continues it, or choose another -o.")
    elif resume:
        say(f"{folder} holds no run to resume; starting a new one.")
    for pattern in (f"{CHECKPOINTS}/.step-*", f"seed-*/{CHECKPOINTS}/.step-*"):
        for killed in folder.glob(pattern):  # left by a process that was killed while saving
            shutil.rmtree(killed, ignore_errors=True)
    if not resume or not (folder / MANIFEST).is_file():
        (folder / RESOLVED_RECIPE).unlink(missing_ok=True)  # left by a run that stopped before its first checkpoint
        for made in ("tokenizer", "tokens"):  # perhaps of another corpus
            shutil.rmtree(folder / made, ignore_errors=True)
        facts = {"weft": VERSION, "kind": "run", "asked": asked, "inputs": fingerprint(recipe, base)}
        facts["base"] = str(base.resolve())  # where the recipe's paths begin, to resume from the folder alone
        write_file(folder / MANIFEST, to_json(facts))


def save_run_plan(folder: Path, recipe: Recipe, base: Path, model: ModelSection, plan: PretrainPlan) -> None:
    """Write the recipe with every setting filled in. Its paths are absolute, so that it can be run itself."""
    tree = recipe.model_copy(update={"pretrain": plan}).given_settings()
    tree["model"] = {"path": model.path} if model.path is not None else model.settings()
    write_resolved_recipe(folder, tree, base)


def write_resolved_recipe(folder: Path, tree: dict[str, Any], base: Path) -> None:
    """Write a recipe with absolute paths to recipe.yml."""
    corpus = tree.get("corpus", {})
    tests = (corpus.get("build", {}).get("decontaminate") or {}).get("against", ())
    sections = (corpus, tree.get("tokenizer", {}), tree.get("model", {}), *corpus.get("sources", ()), *tests)
    for section in sections:
        if "path" in section and "://" not in section["path"]:
            section["path"] = _absolute(section["path"], base)
    tuned, taught = tree.get("finetune", {}), tree.get("distil", {})
    augmented = taught.get("augment") or {}
    for section, keys in ((tuned, ("model",)), (taught, ("teacher", "student", "cache")), (augmented, ("model",))):
        for key in keys:
            if isinstance(section.get(key), str):
                section[key] = _absolute(section[key], base)
    for data in (tuned.get("data", {}), taught.get("data", {})):
        for split in ("train", "validation", "test"):
            if split in data:
                said = data[split]
                named = [said] if isinstance(said, str) else said
                found = [_absolute(path, base) for path in named]
                data[split] = found[0] if isinstance(said, str) else found
    write_file(folder / RESOLVED_RECIPE, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode())


def _absolute(path: str, base: Path) -> str:
    """Of a file, or of a part of an archive, archive::part."""
    file, mark, part = path.partition("::")
    return str((base / file).resolve()) + mark + part


def load_run_plan(folder: Path, model: ModelSection) -> RunPlan | None:
    """The saved plan, in steps. None if the run stopped before it was planned."""
    if not (folder / RESOLVED_RECIPE).is_file():
        return None
    recipe = read_recipe(folder / RESOLVED_RECIPE)
    assert recipe.model is not None and recipe.pretrain is not None
    plan = PretrainPlan(**recipe.pretrain.model_dump(exclude_none=True))
    return RunPlan(model if model.path is not None else recipe.model, plan)


def finished(folder: Path) -> dict[str, Any] | None:
    """The results, if the run is finished and its model intact. Otherwise None."""
    known = read_run(folder)
    try:
        return known["results"] if "results" in known and not changed_files(folder / MODEL) else None
    except FolderError:
        return None


def finish(folder: Path, results: dict[str, Any]) -> None:
    facts = read_json(folder / MANIFEST)
    write_file(folder / MANIFEST, to_json({**facts, "results": results}))


def fingerprint(recipe: Recipe, base: Path) -> str:
    """A hash of everything that the recipe reads: names and contents."""
    corpus = recipe.corpus
    paths = [source.path for source in corpus.sources or ()] if corpus is not None else []
    if corpus is not None and corpus.build is not None and corpus.build.decontaminate is not None:
        paths += [entry.path for entry in corpus.build.decontaminate.against]
    paths += [section.path for section in (corpus, recipe.tokenizer, recipe.model) if section and section.path]
    if recipe.finetune is not None:
        paths += [recipe.finetune.model] if isinstance(recipe.finetune.model, str) else []
        paths += _files_of(recipe.finetune.data)
    if (taught := recipe.distil) is not None:
        models = (taught.teacher, taught.student, taught.augment and taught.augment.model)
        paths += [path for path in models if isinstance(path, str)]
        paths += [] if taught.data is None else _files_of(taught.data)
    for section in (recipe.prune, recipe.quantize):
        if section is not None:
            said = (section.model, section.data, getattr(section, "vocabulary", None))
            paths += [path for one in said if one is not None for path in ([one] if isinstance(one, str) else one)]
    digest = hashlib.sha256()
    for path in paths:
        for file in _files_at(base / path) if "://" not in path else ():
            digest.update(f"{path}\0{os.path.relpath(file, base)}\0{sha256_of(file)}\0".encode())
    return digest.hexdigest()


def _files_of(data: DataSection) -> list[str]:
    said = (getattr(data, split) for split in ("train", "validation", "test"))
    listed = (path for one in said if one is not None for path in ([one] if isinstance(one, str) else one))
    return [path.partition("::")[0] for path in listed]


def _files_at(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*") if file.is_file())
    return [place] if place.is_file() else find_files([place])  # a pattern


def _difference(earlier: Any, now: Any, path: str = "") -> str:
    """The first setting that differs, in words."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in [*earlier, *now]:
            if earlier.get(key) != now.get(key):
                return _difference(earlier.get(key), now.get(key), f"{path}.{key}" if path else key)
    return f"{path or 'it'} was {earlier!r} and is {now!r}"
