"""How results are printed: as a table for people, or as one line of JSON."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from weft.progress import quieted, say
from weft.terminal import CONTROL_CHARACTERS, escape_controls


@contextmanager
def silent_beside_first() -> Iterator[None]:
    """Of the processes that torchrun starts, only the first one speaks. The others may still report errors."""
    if os.environ.get("RANK", "0") == "0":
        yield
        return
    with quieted(), Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def print_next(command: str, hint: str = "", *, quiet: bool) -> None:
    if not quiet:
        say(f"{hint} Next: {command}".lstrip())


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(as_json_line(facts))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        if value not in (None, [], {}):
            # `Text` interprets no markup: names and labels may hold [brackets].
            table.add_row(Text(escape_controls(key), style="bold"), Text(escape_controls(_readable(key, value))))
    Console().print(table)


def print_lines(answers: Sequence[dict[str, Any]]) -> None:
    print("\n".join(as_json_line(answer) for answer in answers), flush=True)


def as_json_line(facts: dict[str, Any]) -> str:
    """One line that standard output can encode, with control characters escaped."""
    line = json.dumps(facts, ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf"))
    return CONTROL_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _readable(key: str, value: Any) -> str:
    if isinstance(value, dict):
        show = _size if key in ("files", "memory") else (lambda item: _readable("", item))
        return "\n".join(f"{name!s}  {show(item)}" for name, item in value.items())
    if isinstance(value, list):
        is_short = len(value) <= 5 and not all(isinstance(item, int | float) for item in value)
        return ("\n" if is_short else "  ").join(_readable("", item) for item in value)
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
