"""C beside Python: a source file, compiled once for this machine and kept in the user's cache.

What lies there is named by its source, compiler and processor. Without a compiler there is no library, and whoever asks
must go without: every kernel has its formula in torch beside it. Symbols of OpenMP are those that torch has loaded, so
both share one pool of threads.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

# Not fast-math, whatever CC may say: exponentials round by adding and subtracting, which it would take out.
FLAGS = ("-O3", "-march=native", "-fno-fast-math", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
FAULTS = (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError, TypeError)

Kernel = Any  # a function of ctypes

_is_forked = False


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def threads() -> int:
    """OpenMP's threads do not come along into a forked process; waiting for them would be for ever."""
    return 1 if _is_forked else torch.get_num_threads()


def open_library(source: Path) -> ctypes.CDLL:
    """Raises one of `FAULTS` where that cannot be."""
    library = _compiled(source)
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # cut off, or made for another system with this home: once more
        library.unlink()
        return ctypes.CDLL(str(_compiled(source)))


def _compiled(source: Path) -> Path:
    """The library for this source, compiler and processor."""
    if os.name != "posix":
        raise OSError("compiled on Linux and the like only")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise FileNotFoundError("no C compiler")
    texts = (file.read_text("utf-8") for file in (source, *sorted(source.parent.glob("*.h"))))
    made_of = *texts, *compiler, *FLAGS, platform.machine(), *platform.libc_ver(), _processor()
    name = hashlib.blake2b("\0".join(made_of).encode(), digest_size=12).hexdigest()
    library = _cache() / f"{source.stem}-{name}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=library.parent) as place:
            command = [*compiler, *FLAGS, str(source), "-o", f"{place}/library.so"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603
            Path(place, "library.so").replace(library)
    return library


def _cache() -> Path:
    """A folder that only this user writes to: what lies in it is run."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = folder.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise PermissionError(f"{folder} is open to others")
    return folder


def _processor() -> str:
    """What the compiler's -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
