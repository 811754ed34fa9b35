"""Signs of life on standard error, so that standard output stays clean for results.

`track` draws a bar on a terminal and writes a line now and then elsewhere (a log file, CI); so does `Gauge`, for work
that is told in documents and bytes.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Self, TypeVar

from weft.terminal import escape_controls

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 5.0


def say(sentence: str) -> None:
    print(escape_controls(sentence), file=sys.stderr, flush=True)


def track(items: Iterable[Item], what: str, total: int | None = None, unit: str = "it") -> Iterator[Item]:
    """Hand the items through and show how far they are."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, what, total, unit) if sys.stderr.isatty() else _lines(items, what, total, unit)


def _bar(items: Iterable[Item], what: str, total: int | None, unit: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(items, total=total, description=escape_controls(what))


def _lines(items: Iterable[Item], what: str, total: int | None, unit: str) -> Iterator[Item]:
    began = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if (now := time.monotonic()) - last >= SECONDS_BETWEEN_LINES:
            last = now
            share = f" of {total:,}" if total else ""
            say(f"{what}: {count:,}{share} {unit}, {count / (now - began):,.0f} {unit}/s")
    say(f"{what}: {count:,} {unit} in {time.monotonic() - began:.1f} s")


class Gauge:
    """How many documents and megabytes are done, of about how many bytes (0: nobody knows), and how fast."""

    def __init__(self, what: str, total: int, unit: str = "documents") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.documents = self.bytes = 0
        self.earlier = (0, 0)  # of these, done before this began
        self.began = self.last = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[rate]}", markup=False),
            )
            self.bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self.bar.start()
            self.task = self.bar.add_task(escape_controls(self.what), total=self.total or None, rate="")
        return self

    def add(self, documents: int, size: int) -> None:
        self.documents += documents
        self.bytes += size
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.task, completed=min(self.bytes, self.total or self.bytes), rate=self._rate())
        elif now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            say(f"{self.what}: {self._rate()}" + (f", {min(self.bytes / self.total, 1):.0%}" if self.total else ""))

    def _rate(self) -> str:
        seconds = max(time.monotonic() - self.began, 1e-9)
        megabytes = self.bytes / 1e6
        documents, size = self.documents - self.earlier[0], (self.bytes - self.earlier[1]) / 1e6
        return (
            f"{self.documents:,} {self.unit}, {megabytes:,.{1 if megabytes < 10 else 0}f} MB "
            f"({documents / seconds:,.0f} {self.unit}/s, {size / seconds:,.1f} MB/s)"
        )

    def go_on_from(self, documents: int, size: int) -> None:
        self.earlier = self.documents, self.bytes = documents, size

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        say(f"{self.what}: {self._rate()}.")
