"""Messages and progress on standard error. Standard output stays clean for results.

Progress has three forms: a bar on a terminal, one updating line in a notebook, and a plain line now and then in a log
file. `track` follows an iterable. `Gauge` follows work that is counted by hand, in items, in bytes or in both.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from typing import Any, Protocol, Self, TypeVar

from weft.terminal import escape_controls

_Item = TypeVar("_Item")
_NOTEBOOK_SECONDS = 0.2  # between two updates of the line
_LOG_SECONDS = (5.0, 60.0)  # between two lines: at first, and at most
_LOG_SHARE = 0.1  # of the time so far that passes between two lines


_is_quiet = False


@contextmanager
def quieted(wanted: bool = True) -> Iterator[None]:
    """Inside, nothing is said and no progress is shown. For the processes beside the first one."""
    global _is_quiet
    before, _is_quiet = _is_quiet, wanted
    try:
        yield
    finally:
        _is_quiet = before


def say(sentence: str) -> None:
    """Where standard error cannot be written (a full disk, a closed pipe), the work goes on without it."""
    if _is_quiet:
        return
    with suppress(OSError, ValueError):
        print(escape_controls(sentence), file=sys.stderr, flush=True)


def track(items: Iterable[_Item], what: str, total: int | None = None, unit: str = "items") -> Iterator[_Item]:
    """Yield the items and show how many are done. Default of `total`: the length of `items`, if it has one."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Gauge(what, unit=unit, total_items=total) as gauge:
        for item in items:
            yield item
            gauge.add(1)


class Gauge:
    """Progress in items and bytes. The share done and the time left follow from the total of bytes, or else of items.

    Without a total only the count and the rate are shown.
    """

    def __init__(
        self,
        what: str,
        total_bytes: int = 0,
        unit: str = "documents",
        *,
        total_items: int | None = None,
        summary: bool = True,
    ) -> None:
        """`summary`: say the totals at the end. Without it nothing stays on the screen."""
        self.what, self.unit, self.summary = what, unit, summary
        self.total_bytes, self.total_items = total_bytes, total_items
        self.items = self.bytes = 0
        self._items_before = self._bytes_before = 0  # done by an earlier run; they do not count for the rate
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._display = _display_for(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()
        if self.summary:
            say(f"{self.what}: {self.counts()} in {duration(self.seconds)} ({self.rate()}).")

    def resume_from(self, items: int, size: int) -> None:
        """Count what an earlier run has done."""
        self.items = self._items_before = items
        self.bytes = self._bytes_before = size

    def add(self, items: int, size: int = 0) -> None:
        self.items += items
        self.bytes += size
        self._display.update()

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._began, 1e-9)

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None without a total. The total of bytes may be an estimate."""
        if self.total_bytes:
            return min(self.bytes / self.total_bytes, 1.0)
        return min(self.items / self.total_items, 1.0) if self.total_items else None

    def counts(self) -> str:
        """12 of 40 documents, 3.1 MB"""
        total = f" of {self.total_items:,}" if self.total_items and self.items < self.total_items else ""
        size = f", {_megabytes(self.bytes)} MB" if self.bytes or self.total_bytes else ""
        return f"{self.items:,}{total} {self.unit}{size}"

    def rate(self) -> str:
        """250 documents/s, 1.2 MB/s"""
        size = self.bytes - self._bytes_before
        bytes_rate = f", {_megabytes(size / self.seconds)} MB/s" if size else ""
        return rate_of(self.items - self._items_before, self.seconds, self.unit) + bytes_rate

    def time_left(self) -> str:
        """2 min 10 s left; empty if it cannot be estimated."""
        before = self._bytes_before / self.total_bytes if self.total_bytes else 0.0
        if not self.total_bytes and self.total_items:
            before = self._items_before / self.total_items
        if self.share is None or self.share <= before or self.share >= 1:
            return ""
        return f"{duration(self.seconds * (1 - self.share) / (self.share - before))} left"

    def line(self) -> str:
        share = "" if self.share is None else f"{self.share:.0%}, "
        parts = [f"{share}{self.counts()}", self.rate(), self.time_left()]
        return f"{self.what}: {', '.join(part for part in parts if part)}"


def rate_of(count: int, seconds: float, unit: str) -> str:
    """250 documents/s; 1.5 documents/s; below one in a second 3.2 s each."""
    each = count / seconds
    if count == 0:
        return f"no {unit} yet"
    if each >= 1:
        return f"{each:,.{1 if each < 10 else 0}f} {unit}/s"
    return f"{duration(seconds / count)} each"


def duration(seconds: float) -> str:
    """0.4 s, 45 s, 2 min 5 s, 3 h 20 min"""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.{1 if size < 1e7 else 0}f}"


class _Display(Protocol):
    def update(self) -> None: ...
    def close(self) -> None: ...


def _display_for(gauge: Gauge) -> _Display:
    if _is_quiet:
        return _LogLines(gauge)
    if is_notebook():
        return _NotebookLine(gauge)
    return _TerminalBar(gauge) if sys.stderr.isatty() else _LogLines(gauge)


def is_notebook() -> bool:
    """Whether standard error is a notebook's output cell. It is not a terminal, but a carriage return works there."""
    return type(sys.stderr).__module__.partition(".")[0] == "ipykernel"


class LiveLine:
    """A line that is written over itself, on a terminal and in a notebook. Elsewhere each text is a line of its own."""

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty() or is_notebook()
        self._clear = "\x1b[2K" if sys.stderr.isatty() else ""
        self._width = 0  # of the text that stands there

    def show(self, text: str, *, stays: bool = False) -> None:
        """`stays`: the next text begins a new line."""
        if _is_quiet or not self.is_live:
            say(text)
            return
        text = escape_controls(text)
        # A notebook has no code that clears a line: spaces cover what the former text had more.
        print(f"\r{self._clear}{text:{self._width}}", end="\n" if stays else "", file=sys.stderr, flush=True)
        self._width = 0 if stays else len(text)


class _TerminalBar:
    def __init__(self, gauge: Gauge) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
        )
        self.gauge = gauge
        self.bar = Progress(*columns, console=Console(stderr=True), transient=not gauge.summary)
        total = None if gauge.share is None else 1.0
        self.task: Any = self.bar.add_task(escape_controls(gauge.what), total=total, counts="")
        self.bar.start()

    def update(self) -> None:
        gauge = self.gauge
        parts = [gauge.counts(), gauge.rate(), gauge.time_left()]
        self.bar.update(self.task, completed=gauge.share or 0, counts=", ".join(part for part in parts if part))

    def close(self) -> None:
        self.bar.stop()


class _NotebookLine:
    def __init__(self, gauge: Gauge) -> None:
        self.gauge, self.last, self.line = gauge, float("-inf"), LiveLine()

    def update(self) -> None:
        if (now := time.monotonic()) - self.last >= _NOTEBOOK_SECONDS:
            self.last = now
            self.line.show(self.gauge.line())

    def close(self) -> None:
        """Clear the line: the last sentence takes its place."""
        self.line.show("")
        print("\r", end="", file=sys.stderr, flush=True)


class _LogLines:
    """A line every 5 seconds at first; in a long run a line every minute."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge, self.last = gauge, 0.0

    def update(self) -> None:
        seconds, (first, most) = self.gauge.seconds, _LOG_SECONDS
        if seconds - self.last >= min(max(first, _LOG_SHARE * seconds), most):
            self.last = seconds
            say(self.gauge.line())

    def close(self) -> None:
        pass
