"""Signs of life on standard error, so that standard output stays clean for results.

`track` draws a bar on a terminal and writes a line now and then elsewhere (a log file, CI).
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 5.0


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def track(items: Iterable[Item], what: str, total: int | None = None, unit: str = "it") -> Iterator[Item]:
    """Hand the items through and show how far they are."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, what, total, unit) if sys.stderr.isatty() else _lines(items, what, total, unit)


def _bar(items: Iterable[Item], what: str, total: int | None, unit: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(items, total=total, description=what)


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
