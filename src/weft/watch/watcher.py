"""All runs below a folder: found again every few seconds, looked at when somebody asks.

Nothing happens while nobody asks. Whoever asks pays for a few stat() per run; several who ask within half a second pay
once. Curves are read only for runs that are opened, a bounded piece per request, and the least recently opened are
forgotten beyond `MOST_CURVE_BYTES`. All methods are for one thread.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import FolderError, InputError, not_found
from weft.watch.buckets import MOST_BUCKETS, bucket_of, bucket_width, bucketed
from weft.watch.control import RunControl
from weft.watch.curves import X_AXES, Floats, RunCurves
from weft.watch.details import PARTS, folder_details, run_details, weight_count
from weft.watch.finding import Finder, FoundFolder, FoundFolders
from weft.watch.log_lines import ShareCurve
from weft.watch.plain_files import shown_text
from weft.watch.reports import SafeReport, read_report
from weft.watch.run import WatchedRun

MOST_CURVE_BYTES = 384 * 2**20
SHARE_KEY = "share_of_peak"  # a curve that only train.log has
_LOOK_SECONDS = 0.5
_FIND_SECONDS, _FIND_SHARE = 3.0, 0.05  # between two searches; of the time that searching may take
_OF_CURVES = frozenset(("plan", "samples"))  # parts for which metrics.jsonl is read
_PIECE = 4 << 20  # bytes of metrics.jsonl that one request reads


class NoSuchRun(InputError):
    """An id that stands for nothing below the folder (any more)."""


@dataclass(frozen=True)
class CurveQuery:
    keys: Sequence[str]
    x: str = "step"
    points: int = 600  # buckets, about
    width: float | None = None  # of a bucket. None: as wide as the points need
    begin: float = 0.0
    end: float | None = None
    since: str | None = None  # the cursor of an earlier answer to the same query: only what is new


class _OpenRun:
    """The curves of a run that somebody looks at."""

    def __init__(self, folder: Path) -> None:
        self.curves, self.share = RunCurves(folder), ShareCurve(folder)
        # Cursors of an earlier reading, perhaps of an earlier service, are not of these rows.
        self._reading = secrets.token_hex(4)

    def points(self, key: str, x: str, begin: float = 0.0) -> tuple[Floats, Floats]:
        if key != SHARE_KEY:
            return self.curves.points(key, x, begin)
        steps, shares = self.share.points()
        axes = self.curves.axes()
        if x == "step" or not axes.shape[1]:
            return steps, shares
        at = np.interp(steps, axes[0], axes[X_AXES.index(x)])
        return np.maximum.accumulate(np.nan_to_num(at)), shares

    @property
    def generation(self) -> str:
        return f"{self._reading}-{self.curves.generation}-{self.share.generation}"

    @property
    def memory(self) -> int:
        return self.curves.memory + 16 * self.share.count


class RunWatcher:
    def __init__(self, root: Path) -> None:
        """Raises InputError if there is no such folder."""
        if not root.exists():
            raise InputError(not_found(root))
        if not root.is_dir():
            raise FolderError(f"{root} is a file; give a folder with runs in it, or a run.")
        self.root, self.control = root, RunControl()
        # Rises when a summary changes. It begins with the time, so that a page notices when the service was restarted.
        self.version = int(time.time() * 1000)
        self._finder = Finder(root)
        self._found = FoundFolders()
        self._runs: dict[str, WatchedRun] = {}
        self._summaries: dict[str, tuple[int, dict[str, Any]]] = {}  # with the version of their last change
        self._open: OrderedDict[str, _OpenRun] = OrderedDict()
        self._weights: dict[str, tuple[int, int | None]] = {}  # of runs without results: newest checkpoint, count
        self._looked = self._next_search = float("-inf")

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        if now >= self._next_search:
            self._search()
        for run in self._runs.values():
            self._look(run)
        self._looked = time.monotonic()

    def look_again(self, run: WatchedRun) -> None:
        """At once: something was done to it."""
        self._look(run)

    def _search(self) -> None:
        began = time.monotonic()
        found = self._finder.find()
        if (found.problems, found.is_cut) != (self._found.problems, self._found.is_cut) or self._others(
            found
        ) != self._others(self._found):
            self.version += 1
        self._found = found
        known = self._runs
        self._runs = {
            one.id: known[one.id] if one.id in known and known[one.id].found == one else WatchedRun(one)
            for one in found.folders
            if one.kind == "run"
        }
        for gone in self._summaries.keys() - self._runs.keys():
            del self._summaries[gone]
            self._open.pop(gone, None)
            self._weights.pop(gone, None)
            self.version += 1
        spent = time.monotonic() - began
        self._next_search = time.monotonic() + max(_FIND_SECONDS, spent / _FIND_SHARE)

    def _look(self, run: WatchedRun) -> None:
        run.look()
        self.control.note_holder(run)
        summary = {**run.summary(), "stopping": self.control.is_stopping(run)}
        summary["starting"] = summary["state"] != "running" and self.control.is_starting(run)
        summary["resume_failure"] = None if summary["state"] == "running" else self.control.failure(run)
        if summary["parameters"] is None and run.checkpoints:
            newest, count = self._weights.get(run.found.id, (-1, None))
            if newest != run.checkpoints[-1]:
                count = weight_count(run)
                self._weights[run.found.id] = run.checkpoints[-1], count
            summary["parameters"] = count
        known = self._summaries.get(run.found.id)
        if known is None or known[1] != summary:
            self.version += 1
            self._summaries[run.found.id] = self.version, summary

    def listing(self, since: int | None = None) -> dict[str, Any]:
        """All runs and other folders; `since`: only the runs that changed after that version."""
        self.refresh()
        if since is not None and since > self.version:  # of another service, whose clock was ahead
            since = None
        changed = [summary for version, summary in self._summaries.values() if since is None or version > since]
        found: dict[str, Any] = {"version": self.version, "now": time.time(), "ids": list(self._runs), "runs": changed}
        if since is None or since < self.version:
            found |= {
                "folder": shown_text(str(self.root.absolute()), 1_000),
                "others": self._others(self._found),
                "problems": self._found.problems,
                "cut": self._found.is_cut,
            }
        return found

    @staticmethod
    def _others(found: FoundFolders) -> list[dict[str, Any]]:
        return [
            {"id": one.id, "kind": one.kind, "name": one.name, "inside": one.inside, "has_report": one.has_report}
            for one in found.folders
            if one.kind != "run"
        ]

    def run(self, id: str) -> WatchedRun:
        """Raises NoSuchRun."""
        self.refresh()
        if id not in self._runs:
            raise NoSuchRun("There is no such run here (any more).")
        return self._runs[id]

    def details(self, id: str, parts: Iterable[str] = PARTS) -> dict[str, Any]:
        """Of a run its summary and the `parts`; of another folder what it says of itself. Raises NoSuchRun."""
        found = self._folder(id)
        if found.kind != "run":
            return {**folder_details(found, self._finder.facts(found.folder), self._id_of), "now": time.time()}
        run, summary = self.run(id), self._summaries[id][1]
        parts = list(parts)
        if _OF_CURVES.isdisjoint(parts):
            curves, read = RunCurves(run.found.folder), 1.0
        else:
            curves = self._opened(id).curves
            read = curves.share_read
        reading = {"read": read, "bad_lines": _bad_lines(curves), "thinned": curves.is_thinned}
        return {**summary, **run_details(run, curves, self._id_of, parts), **reading, "now": time.time()}

    def curves(self, id: str, query: CurveQuery) -> dict[str, Any]:
        """Buckets of each key. `cursor` stands for what was sent; `read` is the share of the file that was read."""
        self.run(id)
        opened = self._opened(id, with_share=SHARE_KEY in query.keys)
        axis = opened.curves.axes()[X_AXES.index(query.x)]
        last = float(axis[np.isfinite(axis)].max(initial=0.0))
        end = last if query.end is None else min(query.end, last)
        width = query.width or bucket_width(end - query.begin, query.points, whole=query.x == "step")
        first, final = (int(bucket_of(np.array([max(0.0, at)]), width)[0]) for at in (query.begin, end))
        if final - first >= MOST_BUCKETS:
            raise InputError(f"This is {final - first + 1:,} buckets; the limit is {MOST_BUCKETS:,}. Choose a width.")
        known = _Cursor.read(query.since, opened.generation, width, query.x)
        begin = max(first, known.bucket) if known is not None else first
        series, sent = {}, final
        if SHARE_KEY in query.keys and not opened.share.is_complete:  # train.log may be read less far
            x, _ = opened.points(SHARE_KEY, query.x)
            sent = min(final, int(bucket_of(x[-1:], width).max(initial=0)))
        for key in query.keys:
            buckets = bucketed(*opened.points(key, query.x, begin * width), width, begin, final)
            series[key] = (
                {"mean": buckets.mean} if buckets.ends is None else {"mean": buckets.mean, "ends": buckets.ends}
            )
        return {
            "id": id,
            "x": query.x,
            "width": width,
            "first": begin,
            "is_new": known is None,
            "last": last,
            "series": series,
            "keys": [*opened.curves.keys, *([SHARE_KEY] if self.run(id).log.share is not None else [])],
            "cursor": str(_Cursor(opened.generation, width, query.x, sent)),
            "read": opened.curves.share_read,
            "bad_lines": _bad_lines(opened.curves),
            "thinned": opened.curves.is_thinned,
        }

    def report(self, id: str) -> SafeReport:
        """Of a run or another folder. Raises NoSuchRun, FolderError."""
        return read_report(self._folder(id).folder)

    def _folder(self, id: str) -> FoundFolder:
        self.refresh()
        for one in self._found.folders:
            if one.id == id:
                return one
        raise NoSuchRun("There is no such folder here (any more).")

    def _id_of(self, path: Path) -> str | None:
        wanted = str(path.absolute())
        return next((one.id for one in self._found.folders if str(one.folder.absolute()) == wanted), None)

    def _opened(self, id: str, *, with_share: bool = False) -> _OpenRun:
        opened = self._open.pop(id, None) or _OpenRun(self._runs[id].found.folder)
        self._open[id] = opened
        try:
            opened.curves.advance(_PIECE)
            if with_share:
                opened.share.advance(_PIECE)
        except OSError as error:
            raise FolderError(f"{shown_text(str(error.filename), 300)} cannot be read: {error.strerror}.") from None
        while len(self._open) > 1 and sum(one.memory for one in self._open.values()) > MOST_CURVE_BYTES:
            self._open.popitem(last=False)
        return opened


@dataclass(frozen=True)
class _Cursor:
    """What an answer held. A bucket that was the last may have got more points since."""

    generation: str
    width: float
    x: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.generation}_{self.width!r}_{self.x}_{self.bucket}"

    @classmethod
    def read(cls, text: str | None, generation: str, width: float, x: str) -> "_Cursor | None":
        """None if it is none, or of another query or of rows that are gone."""
        *_, bucket = (text or "").split("_")
        if not bucket.isascii() or not bucket.isdigit() or len(bucket) > 15:
            return None
        found = cls(generation, width, x, int(bucket))
        return found if str(found) == text else None


def _bad_lines(curves: RunCurves) -> int:
    return curves.bad_lines + curves.tail.long_lines
