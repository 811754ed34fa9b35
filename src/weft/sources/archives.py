"""Files inside files: the members of a compressed file or an archive, one stream after another, never on the disk.

Nothing inside is trusted. A stream that grows too long, or out of proportion to the bytes it comes from, is a bomb; a
member whose name leads out of its archive is not read; of an archive that is cut off, what is whole is read. All of
these are `Refused` with a reason, and the reader continues with the next member.
"""

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from weft.errors import needs

MOST_EXPANDED = 2**36  # bytes of a member
# A member may grow to so many times the bytes it comes from. Smaller members are not checked.
MOST_GROWTH, GROWTH_FROM = 200, 2**26
MOST_HEADER = 2**16  # bytes of a member's name and of the other extended headers of a tar
MOST_GLOBAL_HEADERS = 1000  # entries of a tar's global headers; tarfile copies them to each member
_EXTENDED_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_BUFFER, _PIECE = 2**20, 2**16
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    IndexError,
    ValueError,
    struct.error,
)
_EXPANDERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
COMPRESSED = (*_EXPANDERS, ".zst")
ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tzst")
_LONG_ENDINGS = {".tgz": ".tar.gz", ".txz": ".tar.xz", ".tbz2": ".tar.bz2", ".tzst": ".tar.zst"}


class Refused(Exception):
    """A file or member cannot be read. The message is the reason; the subject is the file: "is encrypted"."""


@dataclass(frozen=True)
class Member:
    """A stream, to be read before the next is asked for; or why there is none."""

    name: str  # in the archive, without the ending of compression; of a compressed file, its name likewise
    content: IO[bytes] | Refused


def inner_name(name: str) -> str:
    """The name without the ending of compression: news.jsonl.gz -> news.jsonl, data.tgz -> data.tar."""
    path = PurePosixPath(name)
    if path.suffix.lower() in _LONG_ENDINGS:
        return inner_name(str(path.with_suffix(_LONG_ENDINGS[path.suffix.lower()])))
    return str(path.with_suffix("")) if path.suffix.lower() in COMPRESSED else name


def is_archive(name: str) -> bool:
    return PurePosixPath(inner_name(name)).suffix.lower() in (".zip", ".tar")


def is_hidden(name: str) -> bool:
    """Hidden files and folders, and macOS's copies of file attributes."""
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or any(part.startswith(".") and part != ".." for part in parts)


def open_members(file: Path) -> Iterator[Member]:
    """A file that is not an archive is its only member. Raises Refused if the rest of the file cannot be read."""
    name = inner_name(file.name)
    with file.open("rb") as raw, _damage_is_refused():
        size = os.fstat(raw.fileno()).st_size
        total = Growth(lambda: size)  # of members that are compressed once more: a bomb may come in two steps
        if PurePosixPath(name).suffix.lower() == ".zip" and name == file.name:
            yield from _zip_members(raw, Growth(lambda: size), total)
            return
        stream = _expanded(file.name, raw)
        if PurePosixPath(name).suffix.lower() == ".tar":
            yield from _tar_members(stream, total)
        else:
            yield Member(name, stream)


def _zip_members(raw: IO[bytes], growth: "Growth", total: "Growth") -> Iterator[Member]:
    """`growth` is that of all members together."""
    with zipfile.ZipFile(raw) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith("/"):
                continue
            if reason := _bad_name(entry.filename) or ("is encrypted" if entry.flag_bits & 1 else ""):
                yield Member(entry.filename, Refused(reason))
                continue
            try:
                with _damage_is_refused():
                    stream = archive.open(entry)
            except Refused as refused:
                yield Member(entry.filename, refused)
                continue
            with stream:
                bounded = _buffered(_Bounded(stream, growth))
                yield Member(inner_name(entry.filename), _expanded(entry.filename, bounded, total))


class _Header(tarfile.TarInfo):
    """A damaged header, or a missing end of the archive, is an error; tarfile would take it for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)  # type: ignore[return-value]
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} in a header") from None

    def _proc_member(self, archive: tarfile.TarFile) -> "_Header":
        """Limits what tarfile reads into memory here: an extended header of any length."""
        if self.type in _EXTENDED_HEADERS and self.size > MOST_HEADER:
            raise Refused(f"holds a name of {self.size:,} bytes")
        if self.type == tarfile.XGLTYPE and len(archive.pax_headers) > MOST_GLOBAL_HEADERS:
            raise Refused(f"has more than {MOST_GLOBAL_HEADERS:,} global headers")
        return super()._proc_member(archive)  # type: ignore[misc]


def _tar_members(stream: IO[bytes], total: "Growth") -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        while entry := archive.next():
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep every header
            if entry.isdir():
                continue
            is_file = entry.isreg() and not entry.issparse()
            if reason := _bad_name(entry.name) or (
                "" if is_file else "is a link, a device or sparse, not a plain file"
            ):
                yield Member(entry.name, Refused(reason))
            else:
                content = _Bounded(archive.extractfile(entry), Growth(lambda size=entry.size: size))
                yield Member(inner_name(entry.name), _expanded(entry.name, _buffered(content), total))


def _bad_name(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or ".." in path.parts or _WINDOWS_DRIVE.match(name):
        return "has a name that leads out of its archive"
    return "is an archive inside an archive" if is_archive(name) else ""


def _expanded(name: str, raw: IO[bytes], total: "Growth | None" = None) -> IO[bytes]:
    """Undo the compression that the name tells. `total` counts the bytes of all members of an archive."""
    ending = PurePosixPath(name).suffix.lower()
    ending = PurePosixPath(_LONG_ENDINGS.get(ending, ending)).suffix or ending
    if ending not in COMPRESSED:
        return raw
    counted = _Counted(raw)
    plain = _buffered(counted)
    stream = _Zstandard(plain) if ending == ".zst" else _EXPANDERS[ending](plain)
    bounded = _Bounded(stream, Growth(lambda: counted.count))
    return _buffered(bounded if total is None else _Bounded(io.BufferedReader(bounded, _BUFFER), total))


def _buffered(raw: io.RawIOBase) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(raw, _BUFFER))


class _Counted(io.RawIOBase):
    """Counts the bytes that are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _Zstandard:
    """zstandard's own reader takes a cut for the end. It is fed in small pieces: each may grow 30,000 times."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.library = needs("zstandard", "corpus", "to read .zst files")
        self.frame: Any = None
        self.stream, self.rest, self.ready = stream, b"", io.BytesIO()

    def read1(self, size: int) -> bytes:
        while not (found := self.ready.read(size)):
            data = self.rest or self.stream.read(1024)
            self.rest = b""
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends inside a frame")
                return b""
            if self.frame is None:
                self.frame = self.library.ZstdDecompressor(max_window_size=2**31).decompressobj()
            try:
                self.ready = io.BytesIO(self.frame.decompress(data))
            except self.library.ZstdError as error:
                raise Refused(f"is damaged or cut off ({error})") from None
            if self.frame.eof:
                self.rest, self.frame = self.frame.unused_data, None
        return found


class Growth:
    """Expanded bytes against compressed bytes."""

    def __init__(self, size_before: Callable[[], int]) -> None:
        self.size_before, self.count = size_before, 0

    def add(self, count: int) -> None:
        self.count += count
        if self.count > MOST_EXPANDED:
            raise Refused(f"holds more than {MOST_EXPANDED:,} bytes")
        if self.count > GROWTH_FROM and self.count > MOST_GROWTH * self.size_before():
            raise Refused(f"grows to more than {MOST_GROWTH} times its size: it may be a bomb")


class _Bounded(io.RawIOBase):
    """Raises Refused at a bomb or at damage."""

    def __init__(self, stream: Any, growth: Growth) -> None:
        self.stream, self.growth = stream, growth

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        with _damage_is_refused():
            data = self.stream.read1(min(len(buffer), _PIECE))  # `read` would lose what comes before a cut
        buffer[: len(data)] = data
        self.growth.add(len(data))
        return len(data)


@contextmanager
def _damage_is_refused() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise Refused(f"is damaged or cut off ({error})") from None
    except RuntimeError as error:  # zipfile: encryption, an unknown method of compression
        raise Refused(f"cannot be expanded ({error})") from None
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # gzip and bz2: invalid data; a seek before the beginning
            raise Refused(f"is damaged or cut off ({error})") from None
        raise
