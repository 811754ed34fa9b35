"""Kernels for writing, compiled here and now where there is a C compiler.

Writing a token multiplies a handful of rows with every weight once, and looks once at every key and value. torch's
matrix product is made for many rows: with 4 of them it reads memory at half the speed that is there, with 16 at less.
`kernels.c` reads at full speed; it is compiled once for this machine (a second) and kept in the user's cache. A row's
result does not depend on how many others there are, to the bit. Without a compiler it goes without.
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
from pathlib import Path
from typing import Any, NamedTuple

import torch

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
COLUMNS = 64  # as in kernels.c
MOST_ROWS = 64  # beyond, torch's own product is as fast

Kernel = Any  # a function of ctypes


class Kernels(NamedTuple):
    multiply: Kernel
    attend: Kernel
    run: Kernel


_is_forked = False


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def threads() -> int:
    """OpenMP's threads do not come along into a forked process; waiting for them would be for ever."""
    return 1 if _is_forked else torch.get_num_threads()


@functools.cache
def load_kernels() -> Kernels | None:
    """None where there is no compiler, no cache, or not the right numbers: then it goes without."""
    try:
        kernels = _open(_compiled())
        with torch.device("cpu"), torch.inference_mode(), torch.autocast("cpu", enabled=False):
            return kernels if _is_right(kernels) else None
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError, TypeError):
        return None


def _open(library: Path) -> Kernels:
    try:
        found = ctypes.CDLL(str(library))
    except OSError:  # cut off, or made for another system with this home: once more
        library.unlink()
        found = ctypes.CDLL(str(_compiled()))
    kernels = Kernels(found.weft_multiply, found.weft_attend, found.weft_run)
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    strided = [pointer, number]
    kernels.multiply.argtypes = [pointer] * 4 + [number] * 3 + [flag] * 2
    kernels.attend.argtypes = [
        *strided * 3, pointer, pointer, pointer, *strided, pointer, pointer, *[number] * 9, ctypes.c_float, flag
    ]  # fmt: skip
    kernels.run.argtypes = [*[pointer] * 9, number, pointer, *[number] * 5, flag]
    for kernel in kernels:
        kernel.restype = None
    return kernels


def _compiled() -> Path:
    """The library for this source, compiler and processor."""
    if os.name != "posix":
        raise OSError("compiled on Linux and the like only")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise FileNotFoundError("no C compiler")
    made_of = SOURCE.read_text(), *compiler, *FLAGS, platform.machine(), *platform.libc_ver(), _processor()
    name = hashlib.blake2b("\0".join(made_of).encode(), digest_size=12).hexdigest()
    library = _cache() / f"kernels-{name}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=library.parent) as place:
            command = [*compiler, *FLAGS, str(SOURCE), "-o", f"{place}/kernels.so"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603
            Path(place, "kernels.so").replace(library)
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


def _is_right(kernels: Kernels) -> bool:
    """Tried before it is trusted, with numbers of its own: a training run's dropout must not notice."""
    chance = torch.Generator().manual_seed(0)
    return _multiplies(kernels.multiply, chance) and _attends(kernels.attend, chance)


def _multiplies(multiply: Kernel, chance: torch.Generator) -> bool:
    """1 to 14 rows, a width that does not fill its blocks."""
    depth, width, count = 5, COLUMNS + 3, 2
    weight = torch.randn(count * COLUMNS, depth, generator=chance, dtype=torch.float32)
    blocks = weight.view(count, COLUMNS, depth).transpose(1, 2).contiguous()
    for rows in (*range(1, 15), 100):  # the last is shared out among threads
        x, out = (
            torch.randn(rows, depth, generator=chance, dtype=torch.float32),
            torch.ones(rows, width, dtype=torch.float32),
        )
        multiply(x.data_ptr(), blocks.data_ptr(), None, out.data_ptr(), rows, depth, width, 1, 2)
        if not torch.allclose(out, x @ weight[:width].T + 1, atol=1e-4):
            return False
    return True


def _attends(attend: Kernel, chance: torch.Generator) -> bool:
    """Two heads that share keys, which begin at the third of nine columns; the last is new."""
    heads, width, columns, begin = 2, 5, 9, 2
    q, new = (
        torch.randn(*shape, generator=chance, dtype=torch.float32) for shape in ((1, heads, width), (2, 1, 1, width))
    )
    keys, values = torch.randn(2, 1, 1, columns, width, generator=chance, dtype=torch.float32)
    begins, scores, out = torch.tensor([begin]), torch.empty(1, columns, dtype=torch.float32), torch.empty_like(q)
    pointers = [(tensor.data_ptr(), tensor.stride(0)) for tensor in (q, new[0], new[1])]
    attend(
        *pointers[0], *pointers[1], *pointers[2], keys.data_ptr(), values.data_ptr(), begins.data_ptr(), None, 0,
        scores.data_ptr(), out.data_ptr(), 1, 1, heads, 1, width, columns, 0, 0, columns, 0.5, 2,
    )  # fmt: skip
    if not (torch.equal(keys[0, 0, -1], new[0, 0, 0]) and torch.equal(values[0, 0, -1], new[1, 0, 0])):
        return False
    weights = (q[0] @ keys[0, 0, begin:].T * 0.5).softmax(-1)
    return torch.allclose(out[0], weights @ values[0, 0, begin:], atol=1e-4)
