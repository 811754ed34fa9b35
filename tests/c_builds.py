"""C sources built for several kinds of processors, each with instructions of its own for the same numbers."""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import weft

HEADERS = Path(weft.__file__).parent / "inference"
_FLAGS = "-O3 -fno-fast-math -fno-math-errno -pthread -shared -fPIC".split()
BUILDS = {"native": ["-march=native"]}
if platform.machine() in ("x86_64", "AMD64"):
    BUILDS |= {
        "no-vnni": ["-march=native", "-mno-avx512vnni"],
        "no-avx512": ["-march=native", "-mno-avx512f"],
        "plain": ["-march=x86-64"],
    }


def build_library(source: str, build: str, folder: Path) -> ctypes.CDLL:
    """Skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (folder / "library.c").write_text(source)
    command = [compiler, *_FLAGS, *BUILDS[build], str(folder / "library.c"), "-o", str(folder / "library.so")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "library.so"))
