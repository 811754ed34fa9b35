"""Atomic writes of files and folders.

`write_file` and `replace_folder` write next to the destination, flush to disk, and then rename atomically: a reader
sees the old state or the new one. Replacing a folder keeps the user's own files in it. `manifest` lists the written
files with sizes and hashes.
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
LOCKED_BYTE = 2**30  # on Windows a locked byte cannot be read: lock one far after the text
MANIFEST = "weft.json"
STALE_SECONDS = 3600.0  # an untouched temporary folder is a leftover
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux's renameat2


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
        sync(path.parent)


@contextmanager
def replace_folder(path: Path, *, mark: str, ours: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yields a new folder, which replaces `path` in one step at the end of the block.

    `mark` is a file that every folder of this kind contains. A folder with other contents and without the mark is
    refused. Files of the old folder are kept unless the new folder has them or they match a pattern in `ours`.
    """
    path = check_place(path, mark=mark)
    new = new_folder(path)
    try:
        with disk_errors(path):
            yield new
            put_in_place(new, path, ours=ours)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def new_folder(path: Path) -> Path:
    """An empty temporary folder beside `path`, for `put_in_place`."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in left_folders(path.parent, path.name):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.new-"))


def left_folders(parent: Path, name: str) -> list[Path]:
    """Temporary folders of places with this name (a pattern): those of killed processes, and those in use."""
    return list(parent.glob(f".{name}.new-*"))


def check_place(path: Path, *, mark: str) -> Path:
    """The absolute path of an output folder. Raises FolderError if it cannot be written or holds other things."""
    try:
        path = refuse_address(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FolderError(f"{path} is not a path that can be written: {error}.") from None
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file, not a folder. Choose another folder.")
    if path == Path.cwd() or path in Path.cwd().parents:
        raise FolderError(f"{path} is or contains the current folder, which cannot be replaced. Choose another folder.")
    if path.is_dir() and not os.access(path, os.W_OK):
        raise FolderError(f"{path} is read-only.")
    if path.is_dir() and any(path.iterdir()) and not (path / mark).exists():
        raise FolderError(f"{path} holds other things (it has no {mark}). Choose a new or empty folder.")
    return path


def check_writable(path: Path) -> None:
    """Raises FolderError if no file can be made in the folder or, while it does not exist, in the nearest that does."""
    with disk_errors(path):
        near = next(place for place in (path, *path.absolute().parents) if place.exists())
        tempfile.TemporaryFile(dir=near).close()


def put_in_place(new: Path, path: Path, *, ours: tuple[str, ...]) -> None:
    """Replaces `path` by a finished folder in one step; see `replace_folder`. The old folder ends up at `new`."""
    mode = 0o666 & ~_UMASK
    for file in new.rglob("*"):
        if file.is_file():  # some libraries write files with owner-only permissions
            file.chmod(mode)
    if path.is_dir():
        _carry_over(path, new, ours)
    new.chmod(path.stat().st_mode if path.is_dir() else 0o777 & ~_UMASK)
    _sync_tree(new)
    _swap(new, path)
    sync(path.parent)


@contextmanager
def locked(file: Path, otherwise: str) -> Iterator[None]:
    """Holds an exclusive lock until the block or the process ends.

    If another process holds it, raises FolderError with the message `otherwise` and who holds the lock since when.
    """
    with disk_errors(file):
        handle = file.open("ab+")
    with handle:
        if not _take(handle, file):
            raise FolderError(otherwise + _holder(file))
        if IS_POSIX and not _is_open_as(handle, file):  # its owner removed it meanwhile
            raise FolderError(otherwise)
        with disk_errors(file):
            handle.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode())
            handle.flush()
        yield


def _take(handle: IO[bytes], file: Path) -> bool:
    """Tries to take the lock, which the system releases when the process ends. Returns whether we have it."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            handle.seek(LOCKED_BYTE)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:  # a file system without locks
        say(f"{file.parent} cannot be locked ({error.strerror}). Do not start another process that writes to it.")
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
    """Yields a new temporary folder in `place`, which is removed at the end unless it was renamed."""
    new = Path(tempfile.mkdtemp(dir=place, prefix=".new-"))
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def rename_unless_there(new: Path, path: Path) -> None:
    """Renames `new` to `path` unless `path` exists: then another process has written the same."""
    try:
        new.rename(path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def manifest(folder: Path, **facts: Any) -> dict[str, Any]:
    """The given facts, and the size and SHA-256 of each file in the folder."""
    files = {
        str(file.relative_to(folder)): file_entry(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    return {**facts, "files": files}


def file_entry(file: Path) -> dict[str, Any]:
    """Its entry in a manifest."""
    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}


def known_facts(folder: Path) -> dict[str, Any]:
    """The contents of the folder's weft.json; empty if it has none, as a model from elsewhere."""
    return read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}


def changed_files(folder: Path) -> list[str]:
    """The files that are missing or differ from the folder's manifest."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise FolderError(f"{folder / MANIFEST} has no list of files.")
    return [
        name
        for name, entry in files.items()
        if not (folder / name).is_file() or sha256_of(folder / name) != entry.get("sha256")
    ]


def read_json(path: Path, most_bytes: int = 100_000_000) -> dict[str, Any]:
    """Reads a JSON object. Raises FolderError if the file is missing, too large or not a JSON object."""
    try:
        if path.stat().st_size > most_bytes:
            raise FolderError(f"{path} is larger than {most_bytes:,} bytes, the limit for {path.name}.")
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
    """Renames `new` to `path`; an old folder at `path` ends up at `new`."""
    if not path.exists() or not any(path.iterdir()):
        if path.exists() and not IS_POSIX:
            path.rmdir()
        new.rename(path)  # also replaces an empty folder, except on Windows
    elif not _exchange(new, path):
        # Without an atomic exchange, a kill between the renames leaves the old folder complete under another name.
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
                f"No space left on the disk while writing {path}. The earlier contents are intact."
            ) from error
        raise FolderError(f"{path} cannot be written: {error.strerror or error}.") from error


def _sync_tree(folder: Path) -> None:
    for item in folder.rglob("*"):
        if not item.is_symlink() and (item.is_file() or item.is_dir()):
            sync(item)
    sync(folder)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    if not IS_POSIX and path.is_dir():  # Windows cannot open folders and flushes their entries itself
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


_UMASK = _read_umask()  # read once: reading sets it for all threads
