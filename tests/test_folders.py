import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft import folders
from weft.errors import FolderError
from weft.folders import locked, replace_folder, write_file

HOLD = """
import sys
from pathlib import Path
from weft.folders import locked
with locked(Path(sys.argv[1]), "Taken."):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_says_who_holds_it_and_dies_with_its_process(tmp_path):
    file = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        told = rf"^Taken\. It is process {holder.pid} on .*, since 20\d\d-"
        with pytest.raises(FolderError, match=told), locked(file, "Taken."):
            pass
        holder.kill()
    with locked(file, "Taken."):
        assert f"process {os.getpid()} " in file.read_text("utf-8")


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, capsys):
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        def flock(self, *_):
            raise OSError(37, "No locks available")

    monkeypatch.setattr(folders, "fcntl", NoLocks())
    with locked(tmp_path / "lock", "Taken."):
        assert "cannot be locked (No locks available)" in capsys.readouterr().err


class Windows:
    """As much of it as can be had elsewhere: no folder can be opened, no handle for reading flushed, nothing renamed
    onto what is there, and a lock is one of bytes."""

    LK_NBLCK = 2

    def __init__(self, patch):
        self.taken = []
        open_file, rename = os.open, Path.rename

        def opened(path, flags, *more, **options):
            if "dir_fd" in options:  # how rmtree works here, and not there
                return open_file(path, flags, *more, **options)
            if Path(path).is_dir() or not flags & (os.O_RDWR | os.O_WRONLY):
                raise PermissionError(13, "Permission denied", str(path))
            return open_file(path, flags, *more, **options)

        def renamed(path, target):
            if Path(target).exists():
                raise FileExistsError(17, "File exists", str(target))
            return rename(path, target)

        patch.setattr(folders, "IS_POSIX", False)
        patch.setattr(folders, "fcntl", None)
        patch.setattr(folders, "msvcrt", self)
        patch.setattr(folders, "_exchange", lambda *_: False)
        patch.setattr(os, "open", opened)
        patch.setattr(Path, "rename", renamed)

    def locking(self, handle, mode, count):
        at = os.lseek(handle, 0, os.SEEK_CUR)
        if at in self.taken:
            raise PermissionError(13, "Permission denied")
        self.taken.append(at)


def test_folders_and_files_are_written_on_windows(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        Windows(patch)
        (tmp_path / "empty").mkdir()
        for place in ("new", "empty", "new"):  # one that is not there, an empty one, one to be replaced
            with replace_folder(tmp_path / place, mark="mark") as new:
                (new / "mark").write_bytes(place.encode())
            (tmp_path / place / "note").write_bytes(b"mine")
        write_file(tmp_path / "file", b"1")
        write_file(tmp_path / "file", b"2")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["empty", "file", "new"]
    assert (tmp_path / "new/mark").read_bytes() == b"new" and (tmp_path / "new/note").read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"2"


def test_a_lock_of_windows_is_behind_the_text_so_that_others_can_read_who_holds_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        windows = Windows(patch)
        lock, told = tmp_path / "lock", rf"Taken\. It is process {os.getpid()}"
        with locked(lock, "Taken."), pytest.raises(FolderError, match=told), locked(lock, "Taken."):
            pass
        assert windows.taken == [folders.LOCKED_BYTE]
    assert (tmp_path / "lock").stat().st_size < 200
