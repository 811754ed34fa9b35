"""Files inside files: what a compressed file or an archive holds, one stream after another and never on the disk.

Nothing inside is trusted. A stream that grows too long, or out of proportion to the bytes it comes from, is a bomb; a
member whose name leads out of its archive is not read; a cut-off archive gives what was whole before the cut. All of
these are `Refused`, with a reason, and the reader goes on with the next.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from weft.errors import needs

MOST_BYTES = 2**36  # that a member may hold
MOST_GROWTH, GROWTH_FROM = 200, 2**26  # times the bytes it comes from; counted beyond so many bytes
CHUNK, PIECE = 2**20, 2**16
EXPANDERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
COMPRESSED = (*EXPANDERS, ".zst")
ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tzst")
SHORT = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2", ".tzst": ".tar.zst"}


class Refused(Exception):
    """This cannot be read; the message says why, as the end of a sentence that begins with the file's name."""


@dataclass(frozen=True)
class Member:
    """A stream, to be read before the next is asked for."""

    name: str  # inside the archive; of a single compressed file, its name without the ending
    stream: IO[bytes]


def inner_name(name: str) -> str:
    """The name without the endings of compression: news.jsonl.gz -> news.jsonl, data.tgz -> data.tar."""
    path = PurePosixPath(name)
    if path.suffix.lower() in SHORT:
        return inner_name(str(path.with_suffix(SHORT[path.suffix.lower()])))
    return str(path.with_suffix("")) if path.suffix.lower() in COMPRESSED else name


def is_archive(name: str) -> bool:
    return PurePosixPath(inner_name(name)).suffix.lower() in (".zip", ".tar")


def open_members(file: Path) -> Iterator[Member | tuple[str, Refused]]:
    """What the file holds: itself, if it is neither compressed nor an archive. A refused member comes with its name."""
    name = inner_name(file.name)
    with file.open("rb") as raw, _damage_is_refused():
        if PurePosixPath(name).suffix.lower() == ".zip" and name == file.name:
            yield from _zipped(raw)
            return
        stream = _expanded(file.name, raw)
        if PurePosixPath(name).suffix.lower() == ".tar":
            yield from _tarred(stream)
        else:
            yield Member(name, stream)


def _zipped(raw: IO[bytes]) -> Iterator[Member | tuple[str, Refused]]:
    with zipfile.ZipFile(raw) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            if reason := _bad_name(entry.filename):
                yield entry.filename, Refused(reason)
            elif entry.flag_bits & 1:
                yield entry.filename, Refused("is encrypted")
            else:
                with archive.open(entry) as stream:
                    bounded = _Bounded(stream, lambda size=entry.compress_size: size)
                    yield Member(inner_name(entry.filename), _expanded(entry.filename, _buffered(bounded)))


def _tarred(stream: IO[bytes]) -> Iterator[Member | tuple[str, Refused]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            if entry.isdir():
                continue
            if reason := _bad_name(entry.name) or ("" if entry.isreg() else "is a link or a device, not a file"):
                yield entry.name, Refused(reason)
            else:
                content = cast("IO[bytes]", archive.extractfile(entry))
                bounded = _Bounded(content, lambda size=entry.size: size)
                yield Member(inner_name(entry.name), _expanded(entry.name, _buffered(bounded)))


def _bad_name(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        return "has a name that leads out of its archive"
    return "is an archive inside an archive" if is_archive(name) else ""


def _expanded(name: str, raw: IO[bytes]) -> IO[bytes]:
    """Without the compression that the name tells of."""
    ending = PurePosixPath(name).suffix.lower()
    ending = PurePosixPath(SHORT.get(ending, ending)).suffix or ending
    if ending not in COMPRESSED:
        return raw
    counted = _Counted(raw)
    plain = _buffered(counted)
    if ending == ".zst":
        zstandard = needs("zstandard", "corpus", "to read .zst files")
        stream = zstandard.ZstdDecompressor().stream_reader(plain, read_across_frames=True)
    else:
        stream = EXPANDERS[ending](plain)
    return _buffered(_Bounded(stream, lambda: counted.count))


def _buffered(raw: io.RawIOBase) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(raw, CHUNK))


class _Counted(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _Bounded(io.RawIOBase):
    """Stops at a bomb."""

    def __init__(self, stream: Any, size_before: Callable[[], int]) -> None:
        self.stream, self.size_before, self.count = stream, size_before, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        with _damage_is_refused():
            data = self.stream.read1(min(len(buffer), PIECE))  # what there is: `read` loses it at a cut
        buffer[: len(data)] = data
        self.count += len(data)
        if self.count > MOST_BYTES:
            raise Refused(f"holds more than {MOST_BYTES:,} bytes")
        if self.count > GROWTH_FROM and self.count > MOST_GROWTH * self.size_before():
            raise Refused(f"grows to more than {MOST_GROWTH} times its size: it may be a bomb")
        return len(data)


@contextmanager
def _damage_is_refused() -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile, tarfile.TarError) as error:
        raise Refused(f"is damaged or cut off ({error})") from None
    except NotImplementedError as error:  # zipfile, of compression methods
        raise Refused(f"cannot be expanded ({error})") from None
    except OSError as error:
        if error.errno is None:  # bz2's way to say that data are invalid; the disk's errors have a number
            raise Refused(f"is damaged or cut off ({error})") from None
        raise
    except Exception as error:  # zstandard's own error, without importing it
        if type(error).__name__ == "ZstdError":
            raise Refused(f"is damaged or cut off ({error})") from None
        raise
