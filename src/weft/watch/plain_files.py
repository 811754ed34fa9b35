"""Reads files of folders that may be anybody's: bounded, without following links, without waiting for pipes.

A run folder can be a download. A link in it could lead to any file of this machine, a pipe would block the reader, a
line could have a gigabyte. Whatever is read is cut, and its control characters and halves of surrogate pairs are shown
as codes.
"""

import errno
import json
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

from weft.terminal import escape_controls

_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # not every system has all of them
    _FLAGS |= getattr(os, _name, 0)

FileStamp = tuple[int, int, int]  # changes when the file does
_MOST_JSON = 4_000_000
_DEEPEST, _MOST_ITEMS = 8, 3_000  # of a copy
CUT = "…"


def open_plain(path: Path) -> FileIO:
    """Raises OSError for anything but a file, links included."""
    handle = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def stamp_of(path: Path, *, follow_links: bool = False) -> FileStamp | None:
    """None if there is nothing."""
    try:
        found = path.stat(follow_symlinks=follow_links)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_beginning(path: Path, most: int) -> tuple[bytes, int]:
    """The first `most` bytes, and the size of the file."""
    with open_plain(path) as file:
        return read_at(file, 0, most), os.fstat(file.fileno()).st_size


def read_end(path: Path, most: int) -> tuple[bytes, int]:
    """The last `most` bytes, and the size of the file."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        return read_at(file, max(0, size - most), most), size


def read_at(file: FileIO, offset: int, most: int) -> bytes:
    """A read may give less than was asked for."""
    file.seek(offset)
    parts: list[bytes] = []
    while most > 0 and (part := file.read(most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none, or something else."""
    try:
        data, size = read_beginning(path, _MOST_JSON)
        found = json.loads(data.decode("utf-8", "replace")) if size <= _MOST_JSON else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def shown_text(text: str | bytes, most: int) -> str:
    """For people: cut, without control characters, and valid Unicode."""
    found = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    found = found if len(found) <= most else found[:most] + CUT
    return escape_controls(found).encode("utf-8", "backslashreplace").decode()


def told_text(value: Any, most: int) -> str:
    """`shown_text` of what should be a text, and may be anything: to write out all of a large list would take long."""
    return shown_text(value if isinstance(value, str) else str(bounded_copy(value)), most)


def bounded_copy(value: Any, most_text: int = 10_000) -> Any:
    """A copy for JSON of what somebody's file holds: not too deep or long, with finite numbers and `shown_text`."""
    left = [_MOST_ITEMS]

    def copy(one: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > _DEEPEST:
            return CUT
        if isinstance(one, dict):
            return {shown_text(str(key), 200): copy(item, depth + 1) for key, item in _some(one.items())}
        if isinstance(one, list | tuple):
            return [copy(item, depth + 1) for item in _some(one)]
        if one is None or isinstance(one, bool):
            return one
        if isinstance(one, int | float):
            return finite(one)
        return shown_text(str(one), most_text)

    return copy(value, 0)


def _some(items: Any) -> list[Any]:
    return list(items)[:_MOST_ITEMS]


def finite(value: Any) -> float | int | None:
    """A number that JSON can hold, or None. A JSON file may hold NaN and integers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e300 < value < 1e300 else None
