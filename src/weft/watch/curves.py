"""All numbers of metrics.jsonl, by key, read piece by piece as the file grows.

A line with a step that was there before (a resumed run) replaces what followed that step. What is in every line (loss,
rates) is kept as columns in float32; what is in some (validation) as points of its own. Beyond `MOST_METRIC_ROWS` lines
every second one is dropped, so that the memory stays bounded; the extremes of the loss are kept.
"""

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.train.training_log import METRICS
from weft.watch.line_tail import LineTail
from weft.watch.plain_files import finite, shown_text

Floats = NDArray[np.float64]
X_AXES = ("step", "tokens", "seconds")
EVERY_LINE = ("loss", "grad_norm", "lr", "tokens_per_second")
MOST_METRIC_ROWS = 1_000_000
_MOST_POINTS = 100_000  # of a key that is only in some lines
_MOST_KEYS, _LONGEST_KEY = 60, 80
_MOST_SAMPLES, SAMPLE_LETTERS = 100, 4_000
LARGEST_STEP = 10**15  # likewise of tokens and seconds: what is beyond has no place on an axis
_COLUMNS = (*X_AXES, *EVERY_LINE)
_KNOWN = frozenset((*_COLUMNS, "sample"))
_SCAN: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass(frozen=True)
class TextSample:
    step: float
    text: str


class RunCurves:
    def __init__(self, folder: Path) -> None:
        self.tail = LineTail(folder / METRICS)
        self.generation = 0  # rises when rows that were given out are gone
        self.is_complete = False
        self.is_thinned = False
        self.bad_lines = 0
        self._forget()

    def _forget(self) -> None:
        self.rows = 0
        self._axes = np.empty((len(X_AXES), 1024))
        self._values = np.empty((len(EVERY_LINE), 1024), np.float32)
        self._new: list[tuple[float, ...]] = []  # rows that are not in the columns yet
        self._points: dict[str, array[float]] = {}  # by key: step, tokens, seconds and value of each point in turn
        self.samples: list[TextSample] = []
        self._last = -1.0  # step
        self.bad_lines, self.is_thinned = 0, False

    @property
    def share_read(self) -> float:
        return 1.0 if self.is_complete else self.tail.offset / max(self.tail.size, 1)

    @property
    def memory(self) -> int:
        """Bytes, about."""
        points = sum(len(one) for one in self._points.values())
        return self._axes.nbytes + self._values.nbytes + 8 * points + 2 * sum(len(one.text) for one in self.samples)

    @property
    def keys(self) -> list[str]:
        has = [key for place, key in enumerate(EVERY_LINE) if np.isfinite(self._values[place, : self.rows]).any()]
        return [*has, *self._points]

    def advance(self, most: int = 1 << 20) -> None:
        """Reads about `most` bytes more. Raises OSError if the file cannot be read."""
        for piece in self.tail.pieces(most):
            if piece.is_restart:
                self.generation += 1
                self._forget()
            for line in piece.lines:
                self._add(line)
            self._store()
            self.is_complete = piece.is_end

    def points(self, key: str, x: str, begin: float = 0.0) -> tuple[Floats, Floats]:
        """The points of a key: on the x axis (rising), and its values. Those before `begin` may be left out."""
        axis = X_AXES.index(x)
        if key in EVERY_LINE:
            # Only steps are sure to rise.
            first = int(np.searchsorted(self._axes[0, : self.rows], begin)) if x == "step" else 0
            place = slice(first, self.rows)
            at, values = self._axes[axis, place], self._values[EVERY_LINE.index(key), place]
        else:
            table = np.array(self._points.get(key, ())).reshape(-1, 4)
            at, values = table[:, axis], table[:, 3]
        known = (at >= 0) & (at < LARGEST_STEP) & np.isfinite(values)
        if not known.all():
            at, values = at[known], values[known]
        if len(at) > 1 and (np.diff(at) < 0).any():
            order = np.argsort(at, kind="stable")
            at, values = at[order], values[order]
        return at, values.astype(np.float64)

    def axes(self) -> Floats:
        """Step, tokens and seconds of each row."""
        return self._axes[:, : self.rows]

    def _add(self, line: bytes) -> None:
        try:
            row = _parsed_line(line.decode("utf-8", "replace"))
            step = row["step"]
            if type(step) not in (int, float) or not 0 <= step < LARGEST_STEP:
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            self.bad_lines += bool(line.strip())
            return
        if step <= self._last:
            self._go_back(step)
        self._last = step
        numbers = tuple([value if type(value) is float else _number(value) for value in map(row.get, _COLUMNS)])
        self._new.append(numbers)
        if not row.keys() <= _KNOWN:
            for name, value in row.items():
                if name not in _KNOWN and finite(value) is not None:
                    self._add_point(name, numbers, value)
        if "sample" in row:
            self._add_sample(step, row["sample"])

    def _add_point(self, name: str, numbers: tuple[float, ...], value: Any) -> None:
        if name not in self._points:
            if len(self._points) >= _MOST_KEYS or len(name) > _LONGEST_KEY or not name.isprintable():
                return
            self._points[name] = array("d")
        found = self._points[name]
        found.extend((*numbers[: len(X_AXES)], value))
        if len(found) >= 4 * _MOST_POINTS:
            kept = np.frombuffer(found).reshape(-1, 4)[::2].ravel()
            self._points[name] = array("d", kept.tolist())
            self.is_thinned = True
            self.generation += 1

    def _add_sample(self, step: float, text: Any) -> None:
        if isinstance(text, str):
            self.samples.append(TextSample(step, shown_text(text, SAMPLE_LETTERS)))
        if len(self.samples) > _MOST_SAMPLES:
            del self.samples[1:-1:2]

    def _go_back(self, step: float) -> None:
        """Forgets what came at this step and later."""
        while self._new and self._new[-1][0] >= step:
            self._new.pop()
        if not self._new:
            kept = int(np.searchsorted(self._axes[0, : self.rows], step, "left"))
            if kept < self.rows:
                self.rows = kept
                self.generation += 1
        for found in self._points.values():
            while found and found[-4] >= step:
                del found[-4:]
        while self.samples and self.samples[-1].step >= step:
            self.samples.pop()

    def _store(self) -> None:
        """Puts the new rows into the columns."""
        if not self._new:
            return
        block = np.array(self._new).T
        self._new = []
        count = block.shape[1]
        while self.rows + count > self._axes.shape[1]:
            self._axes = np.concatenate([self._axes, np.empty_like(self._axes)], axis=1)
            self._values = np.concatenate([self._values, np.empty_like(self._values)], axis=1)
        place = slice(self.rows, self.rows + count)
        axes = block[: len(X_AXES)]
        self._axes[:, place] = np.where((axes >= 0) & (axes < LARGEST_STEP), axes, np.nan)
        with np.errstate(over="ignore"):  # a loss of 1e200 is an infinite one
            self._values[:, place] = block[len(X_AXES) :]
        self.rows += count
        if self.rows > MOST_METRIC_ROWS:
            self._thin()

    def _thin(self) -> None:
        """Of each four rows the two with the lowest and the highest loss."""
        whole = self.rows // 4 * 4
        loss = self._values[0, :whole].reshape(-1, 4)
        low = np.where(np.isfinite(loss), loss, np.inf).argmin(1)
        high = np.where(np.isfinite(loss), loss, -np.inf).argmax(1)
        high = np.where(high == low, (low + 2) % 4, high)
        first = np.arange(0, whole, 4)
        kept = np.sort(np.concatenate([first + low, first + high, np.arange(whole, self.rows)]))
        for table in (self._axes, self._values):
            table[:, : len(kept)] = table[:, kept]
        self.rows = len(kept)
        self.is_thinned = True
        self.generation += 1


def _parsed_line(text: str) -> Any:
    """As json.loads, in half the time for lines as weft writes them."""
    try:
        found, end = _SCAN(text, 0)
    except StopIteration:
        end = -1
    return found if end == len(text) else json.loads(text)


def _number(value: Any) -> float:
    found = finite(value)
    return float("nan") if found is None else float(found)


def projected(x: Sequence[float] | Floats, y: Sequence[float] | Floats, end: float) -> float | None:
    """Where a loss that falls as a power of the tokens will be at `end`, from the latter half of its points."""
    at, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    good = (at > 0) & (values > 0)
    at, values = at[good], values[good]
    half = slice(len(at) // 2, None)
    if len(at[half]) < 3 or end <= at[-1]:
        return None
    slope, start = np.polyfit(np.log(at[half]), np.log(values[half]), 1)
    if not np.isfinite(slope) or slope > 0:
        return None
    return float(np.exp(start + slope * np.log(end)))
