"""The process that holds a run's lock, without touching the lock.

The lock file says process, host and time. The process that wrote it lives if there is one with this number that is
older than the lock: a number that was given again belongs to a younger process. It seems younger, too, if the clock was
set forward since; then what it has open tells. Trying the lock would be simpler, and would make a run that starts at
that moment fail.
"""

import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from weft.watch.plain_files import read_beginning, shown_text

LOCK_NAME = ".lock"
_TOLD = re.compile(r"process (\d{1,9}) on ([^\s,]{1,255}), since (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_SLACK = 3.0  # seconds by which the clock may have been set
_PROC = Path("/proc")
_HERTZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class LockHolder:
    process: int
    host: str
    since: str
    is_here: bool  # on this machine, so that it is known to live

    def as_facts(self) -> dict[str, object]:
        return {"process": self.process, "host": shown_text(self.host, 255), "since": self.since, "here": self.is_here}


def lock_holder(folder: Path) -> LockHolder | None:
    """None if nobody holds it. On another machine the process cannot be seen; then the lock file is believed."""
    file = folder / LOCK_NAME
    try:
        told = read_beginning(file, 400)[0].decode("utf-8", "replace")
        written = file.stat(follow_symlinks=False).st_mtime
    except OSError:
        return None
    found = _TOLD.fullmatch(told)
    if found is None:
        return None
    holder = LockHolder(int(found[1]), found[2], found[3], found[2] == socket.gethostname())
    if holder.is_here and not _lives(holder.process, written, file):
        return None
    return holder


def _lives(process: int, since: float, lock: Path) -> bool:
    if not sys.platform.startswith("linux"):
        return _answers(process)
    started = process_start(process)
    return started is not None and (started <= since + _SLACK or has_open(process, lock) is True)


def _answers(process: int) -> bool:
    if os.name != "posix":  # there kill() would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def process_start(process: int) -> float | None:
    """When a process of this machine began, in seconds since 1970; None if there is none, or it has ended (Linux)."""
    try:
        text = (_PROC / str(process) / "stat").read_text("utf-8", errors="replace")
        uptime = float((_PROC / "uptime").read_text("utf-8").split()[0])
    except (OSError, ValueError):
        return None
    fields = text[text.rfind(")") + 2 :].split()  # the name before it may hold anything
    if len(fields) < 20 or fields[0] in "ZX":  # ended, but its parent has not looked
        return None
    return time.time() - uptime + int(fields[19]) / _HERTZ


def has_open(process: int, file: Path) -> bool | None:
    """Whether a process has a file open; None if that cannot be known, as of another user's process (Linux)."""
    try:
        found = file.stat(follow_symlinks=False)
        handles = list((_PROC / str(process) / "fd").iterdir())
    except OSError:
        return None
    for handle in handles:
        try:
            one = handle.stat()
        except OSError:  # closed meanwhile
            continue
        if (one.st_dev, one.st_ino) == (found.st_dev, found.st_ino):
            return True
    return False


def process_words(process: int) -> list[str]:
    """Its command line; empty if it cannot be read (Linux)."""
    try:
        data = (_PROC / str(process) / "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0")[:-1]]
