"""Files inside files: what a compressed file or an archive holds, one stream after another and never on the disk.

Nothing inside is trusted. A stream that grows too long, or out of proportion to the bytes it comes from, is a bomb; a
member whose name leads out of its archive is not read; a cut-off archive gives what was whole before the cut. All of
these are `Refused`, with a reason, and the reader goes on with the next.
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

MOST_BYTES = 2**36  # that a member may hold
MOST_GROWTH, GROWTH_FROM = 200, 2**26  # times the bytes it comes from; counted beyond so many bytes
MOST_NAME = 2**16  # bytes of a member's name, and of what else a tar says about it
MOST_NOTES = 1000  # that a tar says about all of its members; each of them has a copy
NOTES = (  # headers of a tar that are about the next: long names, PAX
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
CHUNK, PIECE = 2**20, 2**16
DRIVE = re.compile(r"[A-Za-z]:[/\\]")  # of Windows
DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    IndexError,
    ValueError,
    struct.error,
)
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
        size = os.fstat(raw.fileno()).st_size
        total = Growth(lambda: size)  # of what is compressed once more inside: a bomb may come in two steps
        if PurePosixPath(name).suffix.lower() == ".zip" and name == file.name:
            yield from _zipped(raw, Growth(lambda: size), total)
            return
        stream = _expanded(file.name, raw)
        if PurePosixPath(name).suffix.lower() == ".tar":
            yield from _tarred(stream, total)
        else:
            yield Member(name, stream)


def _zipped(raw: IO[bytes], growth: "Growth", total: "Growth") -> Iterator[Member | tuple[str, Refused]]:
    """`growth` is that of all members together."""
    with zipfile.ZipFile(raw) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith("/"):
                continue
            if reason := _bad_name(entry.filename) or ("is encrypted" if entry.flag_bits & 1 else ""):
                yield entry.filename, Refused(reason)
                continue
            try:
                with _damage_is_refused():
                    stream = archive.open(entry)
            except Refused as refused:
                yield entry.filename, refused
                continue
            with stream:
                bounded = _buffered(_Bounded(stream, growth))
                yield Member(inner_name(entry.filename), _expanded(entry.filename, bounded, total))


class _Header(tarfile.TarInfo):
    """A header that is none is an error; tarfile takes it, and a missing end, for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)  # type: ignore[return-value]
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} in a header") from None

    def _proc_member(self, archive: tarfile.TarFile) -> "_Header":
        """Where tarfile would read the whole name, however long."""
        if self.type in NOTES and self.size > MOST_NAME:
            raise Refused(f"holds a name of {self.size:,} bytes")
        if self.type == tarfile.XGLTYPE and len(archive.pax_headers) > MOST_NOTES:
            raise Refused(f"holds more than {MOST_NOTES:,} notes about all of its members")
        return super()._proc_member(archive)  # type: ignore[misc]


def _tarred(stream: IO[bytes], total: "Growth") -> Iterator[Member | tuple[str, Refused]]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        while entry := archive.next():
            archive.members.clear()  # type: ignore[attr-defined]  # which has all that came before
            if entry.isdir():
                continue
            is_file = entry.isreg() and not entry.issparse()
            if reason := _bad_name(entry.name) or (
                "" if is_file else "is a link, a device or sparse, not a plain file"
            ):
                yield entry.name, Refused(reason)
            else:
                content = _Bounded(archive.extractfile(entry), Growth(lambda size=entry.size: size))
                yield Member(inner_name(entry.name), _expanded(entry.name, _buffered(content), total))


def _bad_name(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.name or path.is_absolute() or ".." in path.parts or DRIVE.match(name):
        return "has a name that leads out of its archive"
    return "is an archive inside an archive" if is_archive(name) else ""


def _expanded(name: str, raw: IO[bytes], total: "Growth | None" = None) -> IO[bytes]:
    """Without the compression that the name tells of. Of a member, `total` counts what comes out of all of them."""
    ending = PurePosixPath(name).suffix.lower()
    ending = PurePosixPath(SHORT.get(ending, ending)).suffix or ending
    if ending not in COMPRESSED:
        return raw
    counted = _Counted(raw)
    plain = _buffered(counted)
    stream = _Zstandard(plain) if ending == ".zst" else EXPANDERS[ending](plain)
    bounded = _Bounded(stream, Growth(lambda: counted.count))
    return _buffered(bounded if total is None else _Bounded(io.BufferedReader(bounded, CHUNK), total))


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


class _Zstandard:
    """zstandard's own reader takes a cut for the end. Fed in small pieces, each of which may grow 30,000 times."""

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
    """Bytes that came out, against those that went in."""

    def __init__(self, size_before: Callable[[], int]) -> None:
        self.size_before, self.count = size_before, 0

    def add(self, count: int) -> None:
        self.count += count
        if self.count > MOST_BYTES:
            raise Refused(f"holds more than {MOST_BYTES:,} bytes")
        if self.count > GROWTH_FROM and self.count > MOST_GROWTH * self.size_before():
            raise Refused(f"grows to more than {MOST_GROWTH} times its size: it may be a bomb")


class _Bounded(io.RawIOBase):
    """Stops at a bomb, and at damage."""

    def __init__(self, stream: Any, growth: Growth) -> None:
        self.stream, self.growth = stream, growth

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        with _damage_is_refused():
            data = self.stream.read1(min(len(buffer), PIECE))  # what there is: `read` loses it at a cut
        buffer[: len(data)] = data
        self.growth.add(len(data))
        return len(data)


@contextmanager
def _damage_is_refused() -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise Refused(f"is damaged or cut off ({error})") from None
    except RuntimeError as error:  # zipfile, of encryption and of compression it does not know
        raise Refused(f"cannot be expanded ({error})") from None
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # gzip and bz2, of invalid data; places before a file's beginning
            raise Refused(f"is damaged or cut off ({error})") from None
        raise
