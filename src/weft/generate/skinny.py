"""A few rows times a whole matrix, compiled here and now where there is a C compiler.

Writing a token multiplies a handful of rows with every weight once. torch's matrix product is made for many rows: with
4 of them it reads memory at two thirds of the speed that is there, with 16 at less than half. `skinny.c` is forty
lines that read at full speed; it is compiled once for this machine (a second) and kept in the user's cache. A row's
result does not depend on how many others there are, to the bit.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("skinny.c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
COLUMNS = 64  # as in skinny.c

Kernel = Callable[..., None]


@functools.cache
def load_kernel() -> Kernel | None:
    """None where there is no compiler, no cache, or not the right numbers: then it goes without."""
    try:
        kernel = _open(_compiled())
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None
    return kernel if _is_right(kernel) else None


def _open(library: Path) -> Kernel:
    kernel = ctypes.CDLL(str(library)).skinny
    kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_int] * 2
    kernel.restype = None
    return kernel


def _compiled() -> Path:
    """The library for this source, compiler and processor."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise FileNotFoundError("no C compiler")
    made_of = SOURCE.read_text(), *compiler, *FLAGS, platform.machine(), _processor()
    name = hashlib.blake2b("\0".join(made_of).encode(), digest_size=12).hexdigest()
    library = _cache() / f"skinny-{name}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=library.parent) as place:
            command = [*compiler, *FLAGS, str(SOURCE), "-o", f"{place}/skinny.so"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603
            Path(place, "skinny.so").replace(library)
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
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _is_right(kernel: Kernel) -> bool:
    """Tried before it is trusted: 1 to 14 rows, a width that does not fill its blocks."""
    depth, width, count = 5, COLUMNS + 3, 2
    weight = torch.randn(count * COLUMNS, depth)
    blocks = weight.view(count, COLUMNS, depth).transpose(1, 2).contiguous()
    for rows in range(1, 15):
        x, out = torch.randn(rows, depth), torch.ones(rows, width)
        kernel(x.data_ptr(), blocks.data_ptr(), None, out.data_ptr(), rows, depth, width, 1, 2)
        if not torch.allclose(out, x @ weight[:width].T + 1, atol=1e-4):
            return False
    return True
