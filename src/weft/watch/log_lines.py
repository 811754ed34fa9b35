"""What only train.log says: the share of the machine's peak speed, and for how many steps a run was planned."""

import re
from array import array
from pathlib import Path

import numpy as np

from weft.train.training_log import LOG
from weft.watch.curves import LARGEST_STEP, Floats
from weft.watch.line_tail import LineTail
from weft.watch.plain_files import FileStamp, read_beginning, read_end, shown_text, stamp_of

_PEAK = b"% of the matmul peak"
_STEP_LINE = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d step ([\d,]{1,20})/([\d,]{1,20})  loss "
    rb"[^%\n]{0,200}(?: (\d{1,4})% of the matmul peak)?  [\d:]{1,20} left"
)
_DIVERGED = re.compile(
    rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (At step [^\n]{0,400}training has (?:diverged|exploded)[^\n]*)$", re.M
)
_ENDS = 1 << 14  # bytes at the beginning and the end
_MOST_POINTS = 500_000
_LONGEST_LOG_LINE = 2_000  # letters that are shown


class LogGlance:
    """The newest figures of train.log."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / LOG
        self.share: float | None = None  # of the peak speed
        self.steps: int | None = None  # planned now
        self.steps_at_first: int | None = None
        self.diverged: str | None = None  # what the run said when it ended so
        self._stamp: FileStamp | None = None

    def look(self) -> bool:
        """Whether something is new. Raises OSError if the file cannot be read."""
        stamp = stamp_of(self.file)
        if stamp == self._stamp:
            return False
        self.share = self.steps = self.diverged = None
        if stamp is not None:
            if self.steps_at_first is None and (first := _STEP_LINE.search(read_beginning(self.file, _ENDS)[0])):
                self.steps_at_first = _count(first[2])
            end = read_end(self.file, _ENDS)[0]
            lines = list(_STEP_LINE.finditer(end))
            if lines:
                self.steps, self.share = _count(lines[-1][2]), _share(lines[-1])
            told = list(_DIVERGED.finditer(end, lines[-1].end() if lines else 0))
            self.diverged = shown_text(told[-1][1], 500) if told else None
        self._stamp = stamp  # only now: a file that cannot be read is tried, and told of, at every look
        return True


class ShareCurve:
    """The share of the peak speed over the steps, from all of train.log."""

    def __init__(self, folder: Path) -> None:
        self.tail = LineTail(folder / LOG)
        self._points: array[float] = array("d")  # step and share in turn
        self.generation = 0
        self.is_complete = False

    @property
    def count(self) -> int:
        return len(self._points) // 2

    def advance(self, most: int = 1 << 20) -> None:
        for piece in self.tail.pieces(most):
            if piece.is_restart:
                self.generation += 1
                self._points = array("d")
            for line in piece.lines:
                # Most lines are of this kind, and a search is faster than the whole pattern.
                if line[19:25] == b" step " and _PEAK in line and (found := _STEP_LINE.match(line)):
                    self._add(float(_count(found[1])), int(found[3]) / 100)
            self.is_complete = piece.is_end

    def points(self) -> tuple[Floats, Floats]:
        table = np.array(self._points).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _add(self, step: float, share: float) -> None:
        if step >= LARGEST_STEP:
            return
        if self._points and self._points[-2] >= step:  # the log of a resumed run goes on after the old one
            self.generation += 1
            while self._points and self._points[-2] >= step:
                del self._points[-2:]
        self._points.extend((step, share))
        if len(self._points) > 2 * _MOST_POINTS:
            self.generation += 1
            self._points = array("d", np.array(self._points).reshape(-1, 2)[::2].ravel().tolist())


def log_end(folder: Path, lines: int, most: int = 1 << 16) -> tuple[list[str], bool]:
    """The last lines of train.log, and whether there are more before them."""
    try:
        data, size = read_end(folder / LOG, most)
    except FileNotFoundError:
        return [], False
    found = data.split(b"\n")
    if size > len(data):
        found = found[1:]
    found = found[:-1] if found and not found[-1] else found
    return [shown_text(line, _LONGEST_LOG_LINE) for line in found[-lines:]], size > len(data) or len(found) > lines


def _count(digits: bytes) -> int:
    return int(digits.replace(b",", b"") or b"0")


def _share(found: re.Match[bytes]) -> float | None:
    return None if found[3] is None else int(found[3]) / 100
