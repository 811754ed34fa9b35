"""What a list of runs shows of metrics.jsonl: the last line, the last validation, the speed, the shape of the loss.

A file of any length is sampled at a few places when it is first seen; later only what was added is read. Fifty runs of
20 MB each are seen in a tenth of a second.
"""

import json
import math
import os
from collections import deque
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from weft.train.training_log import METRICS
from weft.watch.plain_files import FileStamp, finite, open_plain, read_at, stamp_of

_PLACES = 64  # where a long file is sampled
_SAMPLE = 1 << 13  # bytes read at each
_END = 1 << 16  # bytes at the end that are read in full
_LONGEST_END = 1 << 22  # the same, if lines are so long that there is none in it
_MOST_ADDED = 1 << 18  # bytes between two looks that are read in full; more is sampled
_VALIDATION_BACK = 1 << 22  # bytes before the end that are searched for the last validation
_RECENT = 300  # lines that tell the speed
_MOST_SHAPE = 80  # points
_Line = dict[str, Any]


@dataclass(frozen=True)
class Glance:
    last: _Line  # the numbers of the last line; empty before the first
    validation: _Line  # of the last line with a validation
    shape: tuple[tuple[float, float], ...]  # steps and losses, thinned
    steps_per_second: float | None
    lines_per_second: float | None


NOTHING_YET = Glance({}, {}, (), None, None)


class MetricsGlance:
    def __init__(self, folder: Path) -> None:
        self.file = folder / METRICS
        self.found = NOTHING_YET
        self.updated: float | None = None  # when the file was last written
        self._stamp: FileStamp | None = None
        self._offset = 0  # up to which complete lines were seen
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)  # steps and seconds

    def look(self) -> bool:
        """Whether something is new. Raises OSError if the file cannot be read."""
        stamp = stamp_of(self.file)
        if stamp == self._stamp:
            return False
        if stamp is None:
            self.found, self.updated, self._offset, self._stamp = NOTHING_YET, None, 0, None
            return True
        self.updated = stamp[2] / 1e9
        with open_plain(self.file) as file:
            size = os.fstat(file.fileno()).st_size
            is_longer = self._stamp is not None and self._stamp[0] == stamp[0] and size >= self._offset > 0
            if is_longer and size - self._offset <= _MOST_ADDED:
                self._add(file, size)
            else:
                self._sample(file, size)
        self._stamp = stamp  # only now: a file that cannot be read is tried, and told of, at every look
        return True

    def _add(self, file: FileIO, size: int) -> None:
        data = read_at(file, self._offset, size - self._offset)
        lines = _numbers(data[: data.rfind(b"\n") + 1])
        known = self.found.last.get("step", 0)
        if lines and lines[0]["step"] <= known:  # the file was written anew in its place
            self._sample(file, size)
            return
        self._offset += data.rfind(b"\n") + 1
        if lines:
            shape = list(self.found.shape)
            shape += [(line["step"], line["loss"]) for line in _with_loss([lines[-1]])]
            validated = [line for line in lines if "validation_loss" in line]
            self.found = replace(
                self.found,
                last=lines[-1],
                validation=validated[-1] if validated else self.found.validation,
                shape=_thinned(shape),
            )
            self._measure(lines)

    def _sample(self, file: FileIO, size: int) -> None:
        end = _end(file, size)
        lines = _numbers(end)
        self._offset = size - len(end) + end.rfind(b"\n") + 1 if b"\n" in end else 0
        shape = []
        if size > _END:
            step = (size - _END) / _PLACES
            for place in range(_PLACES):
                data = read_at(file, int(place * step), _SAMPLE)
                data = data if place == 0 else data[data.find(b"\n") + 1 :]
                some = _numbers(data[: data.find(b"\n") + 1])
                shape += [(line["step"], line["loss"]) for line in _with_loss(some)]
        near = _with_loss(lines)
        shape += [(line["step"], line["loss"]) for line in near[:: max(1, len(near) // 32)] + near[-1:]]
        validated = [line for line in lines if "validation_loss" in line]
        if not validated and size > _END:
            validated = _last_validation(file, size - _END)
        last = lines[-1] if lines else {}
        shown = _thinned([point for point in shape if point[0] <= last.get("step", 0)])
        self.found = Glance(last, validated[-1] if validated else {}, shown, None, None)
        self._recent.clear()
        self._measure(lines)

    def _measure(self, lines: list[_Line]) -> None:
        """The speed over the last lines; a resumed run began its clock where it had stopped."""
        self._recent.extend((line["step"], line["seconds"]) for line in lines if "seconds" in line)
        steps = lasted = 0.0
        if self._recent:
            (first, began), (last, ended) = self._recent[0], self._recent[-1]
            steps, lasted = last - first, ended - began
        is_known = steps > 0 and lasted > 0
        self.found = replace(
            self.found,
            steps_per_second=steps / lasted if is_known else None,
            lines_per_second=(len(self._recent) - 1) / lasted if is_known else None,
        )


def _end(file: FileIO, size: int) -> bytes:
    """The last complete lines, at least one unless all are very long, and what follows them."""
    length = _END
    while True:
        data = read_at(file, max(0, size - length), min(size, length))
        data = data if size <= length else data[data.find(b"\n") + 1 :]
        if b"\n" in data or size <= length or length >= _LONGEST_END:
            return data
        length *= 4


def _numbers(data: bytes) -> list[_Line]:
    """The numbers of each complete line that has a step. A loss that is not finite stays, to be told."""
    found = []
    for line in data.split(b"\n")[:-1]:
        try:
            row = json.loads(line.decode("utf-8", "replace"))
            if finite(row["step"]) is None:
                continue
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            continue
        kept = {key: value for key, value in row.items() if finite(value) is not None}
        if isinstance(row.get("loss"), float) and not math.isfinite(row["loss"]):
            kept["loss"] = row["loss"]
        found.append(kept)
    return found


def _with_loss(lines: list[_Line]) -> list[_Line]:
    return [line for line in lines if math.isfinite(line.get("loss", math.nan))]


def _thinned(shape: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most so many points, evenly spread over the steps: of those that are near each other the mean."""
    if len(shape) < 2:
        return tuple(shape)
    shape = sorted(shape)
    first, last = shape[0][0], shape[-1][0]
    near: dict[int, list[tuple[float, float]]] = {}
    for point in shape:
        near.setdefault(int((point[0] - first) / max(last - first, 1) * _MOST_SHAPE), []).append(point)
    return tuple((points[-1][0], sum(loss for _, loss in points) / len(points)) for points in near.values())


def _last_validation(file: FileIO, before: int) -> list[_Line]:
    """The last line with a validation in the blocks before the end; empty if there is none near."""
    stop = max(0, before - _VALIDATION_BACK)
    while before > stop:
        begin = max(stop, before - _MOST_ADDED)
        data = read_at(file, begin, before - begin + _SAMPLE)
        at = data.rfind(b'"validation_loss"')
        if at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            lines = _numbers(data[start : end + 1]) if end >= 0 else []
            if lines and "validation_loss" in lines[-1]:
                return lines[-1:]
        before = begin
    return []
