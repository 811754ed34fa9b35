"""Complete lines of a file that another process writes, from where the last look ended.

The file may grow, be cut, or be replaced: a resumed run writes metrics.jsonl anew. Then reading starts again at its
beginning, and `restarts` counts it. A last line without its end is left for the next look. The writer is not disturbed:
nothing is locked, and a file that has not changed costs one stat().
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from weft.watch.plain_files import FileStamp, open_plain, read_at, stamp_of

LONGEST_LINE = 1_000_000  # bytes; longer lines are counted and left out
_BLOCK = 1 << 18
_MARK = 512  # bytes before the offset, which tell whether the file is still the one that was read


class TailPiece(NamedTuple):
    lines: list[bytes]
    is_restart: bool  # the file is another one: what was read before is to be forgotten
    is_end: bool


class LineTail:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.offset = 0  # of the first byte that was not read as a line
        self.size = 0
        self.restarts = 0
        self.long_lines = 0
        self._identity: tuple[int, int] | None = None
        self._mark = b""
        self._skips = False  # whether the offset is inside a line that is too long
        self._seen: FileStamp | None = None  # of the file when its end was reached

    def read(self, most: int = _BLOCK) -> tuple[list[bytes], bool]:
        """About `most` bytes of lines, and whether that was all. Raises OSError if the file cannot be read."""
        stamp = stamp_of(self.file)
        if stamp is None:
            self._restart_if(self.offset > 0 or self._skips)
            self.size, self._seen = 0, None
            return [], True
        if stamp == self._seen:
            return [], True
        with open_plain(self.file) as file:
            found = os.fstat(file.fileno())
            self.size, identity = found.st_size, (found.st_dev, found.st_ino)
            self._restart_if(
                (self._identity is not None and identity != self._identity)
                or self.size < self.offset
                or read_at(file, self.offset - len(self._mark), len(self._mark)) != self._mark
            )
            self._identity = identity
            data = read_at(file, self.offset, most)
            if b"\n" not in data and len(data) == most <= LONGEST_LINE:
                data += read_at(file, self.offset + len(data), LONGEST_LINE + 1 - len(data))
            is_end = self.offset + len(data) >= self.size
            lines = self._take(data)
            self._mark = read_at(file, max(0, self.offset - _MARK), min(_MARK, self.offset))
        self._seen = stamp if is_end else None
        return lines, is_end

    def pieces(self, most: int) -> Iterator[TailPiece]:
        """About `most` bytes of lines, a block at a time. Raises OSError if the file cannot be read."""
        is_end = False
        while most > 0 and not is_end:
            restarts = self.restarts
            lines, is_end = self.read(_BLOCK)
            yield TailPiece(lines, self.restarts != restarts, is_end)
            most -= _BLOCK

    def _take(self, data: bytes) -> list[bytes]:
        """The complete lines in what stands at the offset, which moves behind them."""
        if self._skips:
            end = data.find(b"\n")
            self.offset += len(data) if end < 0 else end + 1
            self._skips = end < 0
            return [] if end < 0 else self._take(data[end + 1 :])
        *lines, rest = data.split(b"\n")
        self.offset += len(data) - len(rest)
        kept = [line for line in lines if len(line) <= LONGEST_LINE]
        self.long_lines += len(lines) - len(kept)
        if len(rest) > LONGEST_LINE:
            self.offset += len(rest)
            self.long_lines += 1
            self._skips = True
        return kept

    def _restart_if(self, is_another: bool) -> None:
        if is_another:
            self.offset, self._mark, self._skips, self._identity, self.long_lines = 0, b"", False, None, 0
            self.restarts += 1
