"""Folders on disk that are whole or absent, whatever happens while they are written.

`write_file` and `replace_folder` write beside the destination, flush to the disk, and then rename, which the file
system does at once: a reader sees the old state or the new one. A folder swap carries over files that are not ours,
so saving into a folder never takes a person's notes with it. `manifest` lists what was written with sizes and
hashes.
"""

import ctypes
import errno
import hashlib
import importlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from weft.errors import FolderError, refuse_address
from weft.progress import say

IS_POSIX = os.name == "posix"
fcntl: Any = importlib.import_module("fcntl") if IS_POSIX else None
msvcrt: Any = importlib.import_module("msvcrt") if os.name == "nt" else None
LOCKED_BYTE = 2**30  # on Windows a locked byte cannot be read: one that is far behind the text
MANIFEST = "weft.json"
STALE_SECONDS = 3600.0  # nobody is still writing what nobody touched for an hour
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with disk_errors(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_UMASK)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync(path.parent)


@contextmanager
def replace_folder(path: Path, *, mark: str, ours: tuple[str, ...] = ()) -> Iterator[Path]:
    """A new folder to fill; when the block ends it takes the place of `path` in one step.

    `mark` is a file that every folder of this kind holds: a folder with other things in it and without the mark is
    somebody else's, and is refused. From an old folder of this kind everything is carried over but what the new one
    writes again and what matches a pattern in `ours`.
    """
    path = check_place(path, mark=mark)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{path.name}.new-*"):  # of a save that was killed
            if time.time() - stale.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(stale, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.new-"))
        try:
            yield new
            put_in_place(new, path, ours=ours)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def check_place(path: Path, *, mark: str) -> Path:
    """Where a folder of the kind with this `mark` can be written, as an absolute path; or an error."""
    try:
        path = refuse_address(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FolderError(f"{path} is not a path that can be written: {error}.") from None
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file; a folder is to be written there.")
    if path == Path.cwd() or path in Path.cwd().parents:
        raise FolderError(
            f"{path} is where this program runs; it cannot be replaced from inside. Choose another folder."
        )
    if path.is_dir() and not os.access(path, os.W_OK):
        raise FolderError(f"{path} is read-only.")
    if path.is_dir() and any(path.iterdir()) and not (path / mark).exists():
        raise FolderError(f"{path} holds other things (it has no {mark}). Choose a new or empty folder.")
    return path


def put_in_place(new: Path, path: Path, *, ours: tuple[str, ...]) -> None:
    """A finished folder takes the place of `path` in one step; see `replace_folder`. The old one ends up at `new`."""
    mode = 0o666 & ~_UMASK
    for file in new.rglob("*"):
        if file.is_file():  # some libraries write files that only their owner can read
            file.chmod(mode)
    if path.is_dir():
        _carry_over(path, new, ours)
    new.chmod(path.stat().st_mode if path.is_dir() else 0o777 & ~_UMASK)
    _sync_tree(new)
    _swap(new, path)
    _sync(path.parent)


@contextmanager
def locked(file: Path, otherwise: str) -> Iterator[None]:
    """Ours alone, until the end of the block or of the process, however it ends. `otherwise` is the sentence for a file
    that is somebody else's; who has it, and since when, is put behind it.
    """
    with disk_errors(file):
        handle = file.open("ab+")
    with handle:
        if not _take(handle, file):
            raise FolderError(otherwise + _holder(file))
        if IS_POSIX and not _is_open_as(handle, file):  # its owner put it away while we took hold of it
            raise FolderError(otherwise)
        with disk_errors(file):
            handle.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode())
            handle.flush()
        yield


def _take(handle: IO[bytes], file: Path) -> bool:
    """Whether the system gives us the lock. It takes it back when the process ends."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            handle.seek(LOCKED_BYTE)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:  # a file system without locks
        say(f"{file.parent} cannot be locked ({error.strerror}): do not start anything else that writes to it.")
    return True


def _holder(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            told = stream.read(200).decode("utf-8", "replace")
    except OSError:
        return ""
    return f" It is {told}." if told.isprintable() and told else ""


def _is_open_as(handle: IO[bytes], file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.fileno()), file.stat())
    except FileNotFoundError:
        return False


@contextmanager
def private_folder(place: Path) -> Iterator[Path]:
    """A new folder in `place` that nobody else writes to; gone at the end, unless it was renamed."""
    new = Path(tempfile.mkdtemp(dir=place, prefix=".new-"))
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def rename_unless_there(new: Path, path: Path) -> None:
    """Whoever is first wins; the others have made the same."""
    try:
        new.rename(path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def manifest(folder: Path, **facts: Any) -> dict[str, Any]:
    """What a folder holds: the facts given, and each file's size and SHA-256."""
    files = {
        str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    return {**facts, "files": files}


def known_facts(folder: Path) -> dict[str, Any]:
    """What its weft.json says; nothing, if it has none (a model of somebody else's)."""
    return read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}


def changed_files(folder: Path) -> list[str]:
    """Files that are no longer what the folder's manifest says (missing, or other bytes)."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise FolderError(f"{folder / MANIFEST} has no list of files.")
    return [
        name
        for name, entry in files.items()
        if not (folder / name).is_file() or sha256_of(folder / name) != entry.get("sha256")
    ]


def read_json(path: Path, most_bytes: int = 100_000_000) -> dict[str, Any]:
    """A JSON object from a file, or a sentence why not."""
    try:
        if path.stat().st_size > most_bytes:
            raise FolderError(f"{path} is larger than {most_bytes:,} bytes, which no {path.name} is.")
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FolderError(f"{path} is missing.") from None
    except (ValueError, RecursionError) as error:
        what = "is empty" if path.stat().st_size == 0 else f"is not JSON ({error})"
        raise FolderError(f"{path} {what}.") from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}.") from None
    if not isinstance(value, dict):
        raise FolderError(f"{path} holds {type(value).__name__}, not a JSON object.")
    return value


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _carry_over(old: Path, new: Path, ours: tuple[str, ...]) -> None:
    for item in old.iterdir():
        if (new / item.name).exists() or any(item.match(pattern) for pattern in ours):
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.copytree(item, new / item.name, symlinks=True)
        else:
            shutil.copy2(item, new / item.name, follow_symlinks=False)


def _swap(new: Path, path: Path) -> None:
    """`new` becomes `path`; the old one, if any, ends up at `new`."""
    if not path.exists() or not any(path.iterdir()):
        if path.exists() and not IS_POSIX:
            path.rmdir()
        new.rename(path)  # replaces an empty folder, too, but on Windows
    elif not _exchange(new, path):
        # Where the system cannot exchange two folders, a kill between these two renames leaves the old one, whole,
        # under the name beside it.
        aside = path.with_name(f".{path.name}.old-{os.getpid()}")
        path.rename(aside)
        try:
            new.rename(path)
        except OSError:
            aside.rename(path)
            raise
        aside.rename(new)


def _exchange(a: Path, b: Path) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return rename(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE) == 0


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise FolderError(
                f"No space left on the disk while writing {path}; what was there before is whole."
            ) from error
        raise FolderError(f"{path} cannot be written: {error.strerror or error}.") from error


def _sync_tree(folder: Path) -> None:
    for item in folder.rglob("*"):
        if not item.is_symlink() and (item.is_file() or item.is_dir()):
            _sync(item)
    _sync(folder)


def _sync(path: Path) -> None:
    if not IS_POSIX and path.is_dir():  # Windows opens no folders, and writes their entries down by itself
        return
    handle = os.open(path, os.O_RDONLY if IS_POSIX else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _read_umask()  # once: to read it is to set it, for all threads
