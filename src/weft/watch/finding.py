"""What lies below a folder: runs, corpora, tokenizers, models and reports.

Breadth first, so that the nearest are found if there is too much. Links to folders are followed, each folder once, so a
loop ends. Nothing is opened but weft.json, and that only after it changed.
"""

import hashlib
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.folders import MANIFEST
from weft.train.training_log import METRICS
from weft.watch.plain_files import FileStamp, read_object, shown_text, stamp_of

REPORT_NAME = "report.html"
MOST_FOLDERS, MOST_FOUND, DEEPEST = 4_000, 1_000, 6
_KINDS = ("run", "corpus", "tokenizer", "model")
_NOT_ENTERED = frozenset(("checkpoints", "tokens", "tensorboard", "node_modules"))
_SEED = re.compile(r"seed-\d{1,9}")
_MOST_PROBLEMS = 20
_Manifests = dict[Path, tuple[FileStamp, dict[str, Any]]]  # what weft.json of each folder holds


@dataclass(frozen=True)
class FoundFolder:
    """`home`: the run's own folder; for one of several seeds the folder of their run. `inside`: the id of the run that
    this is a part of, such as its model.
    """

    id: str
    kind: str  # run, corpus, tokenizer, model or report
    name: str  # the path below the folder that is watched
    folder: Path
    home: Path
    has_report: bool
    inside: str | None = None


@dataclass
class FoundFolders:
    folders: list[FoundFolder] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_cut: bool = False  # whether there is more than was looked at


class Finder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: _Manifests = {}

    def find(self) -> FoundFolders:
        found = FoundFolders()
        seen: set[tuple[int, int]] = set()
        waiting: deque[tuple[Path, str, int, FoundFolder | None]] = deque([(self.root, "", 0, None)])
        known: _Manifests = {}
        visited = 0
        while waiting:
            folder, name, depth, run = waiting.popleft()
            visited += 1
            if visited > MOST_FOLDERS or len(found.folders) >= MOST_FOUND:
                found.is_cut = True
                break
            try:
                here = folder.stat()
                names, below = _contents(folder)
            except OSError as error:
                if len(found.problems) < _MOST_PROBLEMS:
                    found.problems.append(f"{shown_text(name or '.', 300)} cannot be read: {error.strerror}.")
                continue
            if (here.st_dev, here.st_ino) in seen:
                continue
            seen.add((here.st_dev, here.st_ino))
            kind = self._kind(folder, names, run, known)
            this = None
            if kind is not None:
                home = run.folder if run is not None and kind == "run" and MANIFEST not in names else folder
                shown = shown_text(name or self.root.resolve().name or "/", 500)
                inside = None if run is None else run.id
                this = FoundFolder(folder_id(name), kind, shown, folder, home, REPORT_NAME in names, inside)
                found.folders.append(this)
            if kind in (None, "run") and depth < DEEPEST:
                waiting.extend((folder / one, f"{name}/{one}" if name else one, depth + 1, this) for one in below)
            elif kind in (None, "run") and below:
                found.is_cut = True
        self._known = known
        return found

    def facts(self, folder: Path) -> dict[str, Any]:
        """The contents of a folder's weft.json, as of the last search."""
        return self._known.get(folder, ((0, 0, 0), {}))[1]

    def _kind(
        self,
        folder: Path,
        names: set[str],
        run: FoundFolder | None,
        known: _Manifests,
    ) -> str | None:
        if MANIFEST in names:
            stamp = stamp_of(folder / MANIFEST) or (0, 0, 0)
            before = self._known.get(folder)
            facts = before[1] if before is not None and before[0] == stamp else read_object(folder / MANIFEST)
            known[folder] = stamp, facts
            if facts.get("kind") in _KINDS:
                return str(facts["kind"])
        if run is not None and METRICS in names and _SEED.fullmatch(folder.name):
            return "run"
        if "config.json" in names and any(name.endswith(".safetensors") for name in names):
            return "model"
        if "tokenizer.json" in names:
            return "tokenizer"
        return "report" if {REPORT_NAME, "report.json"} <= names else None


def folder_id(name: str) -> str:
    """Stands for a path below the watched folder, so that no request names a path."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _contents(folder: Path) -> tuple[set[str], list[str]]:
    """Names of files, and of folders to look into."""
    names, below = set(), []
    with os.scandir(folder) as entries:
        for entry in _some_of(entries):
            if entry.name.startswith("."):
                continue
            try:
                is_folder = entry.is_dir()
            except OSError:  # a link that leads to itself
                continue
            if not is_folder:
                names.add(entry.name)
            elif entry.name not in _NOT_ENTERED:
                below.append(entry.name)
    return names, sorted(below)


def _some_of(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    for count, entry in enumerate(entries):
        if count >= 20 * MOST_FOLDERS:
            return
        yield entry
