"""One run: whether it lives, how far it is, how fast.

A run whose lock is held by a living process is running. If it has results, it is finished. Otherwise it has stopped: as
asked, if its newest checkpoint is not older than its last line; by itself (killed, crashed, diverged) if it is.
"""

import math
import re
import time
from pathlib import Path
from typing import Any

import yaml

from weft.folders import MANIFEST
from weft.watch.finding import FoundFolder
from weft.watch.glance import MetricsGlance
from weft.watch.holder import LockHolder, lock_holder
from weft.watch.log_lines import LogGlance
from weft.watch.plain_files import (
    FileStamp,
    bounded_copy,
    finite,
    read_beginning,
    read_object,
    shown_text,
    stamp_of,
    told_text,
)

# As weft.train names them; to import them from there would import torch.
RESOLVED_NAME, CHECKPOINTS_NAME, MODEL_NAME = "recipe.yml", "checkpoints", "model"
_MOST_RECIPE = 200_000  # bytes
_STEP_FOLDER = re.compile(r"step-(\d{1,15})")
_BUDGET_STEPS = re.compile(r"\s*(\d{1,15}) steps\s*")
_QUIET_SECONDS, _QUIET_LINES = 60.0, 20.0  # without news, before a run is called stale; the latter in lines
_MOST_SETTINGS, _DEEPEST_SETTING = 500, 12
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class WatchedRun:
    def __init__(self, found: FoundFolder) -> None:
        self.found = found
        self.facts: dict[str, Any] = {}  # of weft.json
        self.recipe = ""  # the resolved one, as it is written
        self.settings: dict[str, str] = {}  # of the resolved recipe: model.layers and so on
        self.holder: LockHolder | None = None
        self.checkpoints: list[int] = []
        self.model: dict[str, Any] = {}  # weft.json of the model it has written
        self.glance, self.log = MetricsGlance(found.folder), LogGlance(found.folder)
        self.problem: str | None = None
        self._stamps: dict[str, FileStamp | None] = {}

    def look(self) -> None:
        """Reads what has changed."""
        home, folder = self.found.home, self.found.folder
        self.problem = None
        if self._has_changed(home / MANIFEST):
            self.facts = read_object(home / MANIFEST)
        if self._has_changed(home / RESOLVED_NAME):
            self._read_recipe(home / RESOLVED_NAME)
        if self._has_changed(folder / CHECKPOINTS_NAME, follow_links=True):  # it may be on another disk
            self.checkpoints = saved_steps(folder / CHECKPOINTS_NAME)
        if self._has_changed(folder / MODEL_NAME / MANIFEST):
            self.model = read_object(folder / MODEL_NAME / MANIFEST)
        self.holder = lock_holder(home)
        for file in (self.glance, self.log):
            try:
                file.look()
            except OSError as error:
                self.problem = f"{shown_text(str(error.filename), 300)} cannot be read: {error.strerror}."

    def _has_changed(self, path: Path, *, follow_links: bool = False) -> bool:
        stamp = stamp_of(path, follow_links=follow_links)
        before = self._stamps.get(str(path), (-1, -1, -1))
        self._stamps[str(path)] = stamp
        return stamp != before

    def _read_recipe(self, file: Path) -> None:
        self.recipe, self.settings = "", {}
        try:
            data, size = read_beginning(file, _MOST_RECIPE)
            self.recipe = shown_text(data, _MOST_RECIPE)
            if size <= _MOST_RECIPE and b"<<" not in data:  # merged mappings can grow without bound
                self.settings = flat_settings(yaml.load(data, Loader=_Loader))  # noqa: S506 (a SafeLoader)
        except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError):
            return

    @property
    def asked(self) -> dict[str, Any]:
        """The recipe as it was given."""
        found = self.facts.get("asked")
        return found if isinstance(found, dict) else {}

    @property
    def results(self) -> dict[str, Any]:
        found = self.facts.get("results")
        return found if isinstance(found, dict) else {}

    @property
    def stage(self) -> str:
        if "finetune" not in self.asked:
            compressed = (name for name in ("distil", "prune", "quantize") if name in self.asked)
            return "pretrain" if "pretrain" in self.asked else next(compressed, "pretrain")
        has_both = "pretrain" in self.asked
        return "pretrain" if has_both and (self.found.home / "tokens").is_dir() else "finetune"

    @property
    def is_seed(self) -> bool:
        """Whether it is one of several runs that differ in their seed."""
        return self.found.home != self.found.folder

    @property
    def state(self) -> str:
        if self.is_seed and self.model:  # its sisters may still be running
            return "finished"
        if self.holder is not None:
            return "running"
        if self.results:
            return "finished"
        last = self.glance.found.last
        if self.log.diverged is not None or not math.isfinite(last.get("loss", 0.0)):
            return "diverged"
        newest = self.checkpoints[-1] if self.checkpoints else 0
        return "failed" if last.get("step", 0) > newest else "stopped"

    @property
    def is_stale(self) -> bool:
        """Whether a running run has said nothing for long."""
        if self.state != "running" or self.glance.updated is None:
            return False
        rate = self.glance.found.lines_per_second
        usual = _QUIET_LINES / rate if rate else 0.0
        return time.time() - self.glance.updated > max(_QUIET_SECONDS, usual)

    @property
    def steps(self) -> int | None:
        """How many are planned; a budget in time is corrected once on the way."""
        told = _BUDGET_STEPS.fullmatch(self.settings.get(f"{self.stage}.budget", ""))
        return int(told[1]) if told else self.log.steps

    def summary(self) -> dict[str, Any]:
        seen = self.glance.found
        last, validation = seen.last, seen.validation
        step, steps = last.get("step"), self.steps
        left = None
        if self.state == "running" and steps and step is not None and seen.steps_per_second:
            left = finite(max(0.0, steps - step) / seen.steps_per_second)
        loss = last.get("loss")
        return {
            "id": self.found.id,
            "name": self.found.name,
            "inside": self.found.inside,
            "is_seed": self.is_seed,
            "recipe": told_text(self.asked.get("name", ""), 200),
            "stage": self.stage,
            **self._kind(),
            "state": self.state,
            "stale": self.is_stale,
            "holder": None if self.holder is None else self.holder.as_facts(),
            "step": step,
            "steps": steps,
            "tokens": last.get("tokens"),
            "seconds": last.get("seconds"),
            "loss": finite(loss),
            "loss_text": None if finite(loss) is not None or loss is None else str(loss),
            "validation_loss": validation.get("validation_loss"),
            "validation_step": validation.get("step"),
            "lr": last.get("lr"),
            "grad_norm": last.get("grad_norm"),
            "tokens_per_second": last.get("tokens_per_second"),
            "share_of_peak": self.log.share,
            "seconds_left": left,
            "updated": self.glance.updated,
            "shape": [[step, float(f"{value:.5g}")] for step, value in seen.shape],
            "has_report": self.found.has_report,
            "problem": self.problem or self.log.diverged,
        }

    def _kind(self) -> dict[str, Any]:
        settings, shape = self.settings, []
        model = "finetune.model" if self.stage == "finetune" else "model"
        for name in ("layers", "width"):
            shape += [settings[f"{model}.{name}"]] if f"{model}.{name}" in settings else []
        family = settings.get(f"{model}.family") or self.model.get("family")
        return {
            "family": told_text(family, 60) if family else None,
            "size": settings.get(f"{model}.size") or (" × ".join(shape) if len(shape) == 2 else None),
            "parameters": finite(self.results.get("parameters")),
            "task": settings.get("finetune.task") if self.stage == "finetune" else settings.get("pretrain.objective"),
        }


def saved_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints, rising."""
    try:
        names = [_STEP_FOLDER.fullmatch(item.name) for item in folder.iterdir()]
    except OSError:
        return []
    return sorted(int(name[1]) for name in names if name)


def flat_settings(tree: Any) -> dict[str, str]:
    """`model.layers: 6` and so on. A recipe may be anybody's: not too many, not too deep."""
    found: dict[str, str] = {}

    def walk(one: Any, path: str, depth: int) -> None:
        if len(found) >= _MOST_SETTINGS:
            return
        if isinstance(one, dict) and depth < _DEEPEST_SETTING and one:
            for key, value in list(one.items())[:_MOST_SETTINGS]:
                walk(value, f"{path}.{key}" if path else str(key), depth + 1)
        elif isinstance(one, list) and depth < _DEEPEST_SETTING and any(isinstance(item, dict | list) for item in one):
            for place, value in enumerate(one[:_MOST_SETTINGS]):
                walk(value, f"{path}.{place}", depth + 1)
        elif path:
            shown = bounded_copy(one, 500)
            text = ", ".join(map(_as_yaml, shown)) if isinstance(shown, list) else _as_yaml(shown)
            found[shown_text(path, 200)] = shown_text(text, 500)

    walk(tree, "", 0)
    return found


def _as_yaml(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )
