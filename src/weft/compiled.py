"""C kernels, compiled once for this machine and kept in the user's cache.

The name of a library depends on its source, compiler and processor. Without a compiler there are no kernels; each has a
fallback in torch. The reason why kernels are missing is kept for `weft info` and a run's log. OpenMP symbols are those
that torch has loaded, so both share one thread pool.

Kernels on network tensors are torch operators (`torch.ops.weft`), so that fake tensors and `torch.compile` know their
shapes. They do not use `torch.library.custom_op`: it adds 40 µs to a call with its gradient, this way 10 µs.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

# No fast-math, even if CC asks for it: it would remove the additions and subtractions that round in exponentials.
_FLAGS = ("-O3", "-march=native", "-fno-fast-math", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
_COMPILER_SECONDS = 60  # until the compiler is stopped
_PLAIN_TYPES = (Tensor, nn.Parameter)
_OPERATORS = torch.library.Library("weft", "DEF")

Kernel = Any  # a ctypes function
_Kernels = TypeVar("_Kernels")
_Function = TypeVar("_Function", bound=Callable[..., Any])

_is_forked = False
_reasons: dict[str, str | None] = {}


class KernelsMissing(Exception):
    """Kernels are not available; the message says why."""


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def threads(wanted: int | None = None) -> int:
    """The number of threads for a kernel: `wanted`, default torch's. 1 in a forked process, which has no OpenMP threads
    and would wait for them forever.
    """
    return 1 if _is_forked else wanted or torch.get_num_threads()


def constant_when_traced(function: _Function) -> _Function:
    """For torch.compile, as torch.compiler.assume_constant_result, which imports torch._dynamo: 0.8 seconds."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def operator(schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> Callable[..., Any]:
    """Registers `torch.ops.weft.<name>`, for plain tensors, below autograd. `shapes` returns tensors with the shapes of
    the result of `compute`.
    """
    name = schema.partition("(")[0]
    _OPERATORS.define(schema)
    _OPERATORS.impl(name, compute, "CPU")
    torch.library.register_fake(f"weft::{name}", shapes, lib=_OPERATORS)
    registered = getattr(torch.ops.weft, name).default

    def call(*given: Any) -> Any:
        # Called directly outside of tracing: the dispatcher takes 10 µs, in total a tenth of a tiny model's step.
        is_watched = torch.compiler.is_compiling() or is_in_torch_dispatch_mode()
        return registered(*given) if is_watched else compute(*given)

    return call


def are_plain(*tensors: Tensor) -> bool:
    """Whether all are ordinary fp32 CPU tensors. Others (DTensors, fake tensors) use the fallback in torch."""
    for x in tensors:  # a loop: this runs in every pass of every step
        if type(x) not in _PLAIN_TYPES or x.dtype is not torch.float32 or x.device.type != "cpu":
            return False
    return not torch.compiler.is_exporting()  # an exported program runs without weft


def load_tried(
    name: str, load: Callable[[], _Kernels], trials: Sequence[Callable[[_Kernels], bool]]
) -> _Kernels | None:
    """Loads and tests kernels. Returns None if they are missing or wrong; `why_missing` has the reason."""
    _reasons[name] = None
    try:
        with _undisturbed():
            kernels = load()
            for trial in trials:
                if not trial(kernels):
                    raise KernelsMissing(f"compiled here they give wrong numbers ({trial.__name__.strip('_')})")
    except KernelsMissing as error:
        _reasons[name] = str(error)
        return None
    return kernels


def why_missing(name: str) -> str | None:
    """Why these kernels are missing; None if they are available."""
    return _reasons[name]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Resets the torch modes of the caller: real CPU tensors with gradients."""
    with (
        _disable_current_modes(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


def open_library(source: Path) -> ctypes.CDLL:
    """Compiles and opens a library. Raises KernelsMissing if that is not possible."""
    library = _compiled(source)
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # truncated, or made on another system with this home: compile again
        library.unlink(missing_ok=True)
    try:
        return ctypes.CDLL(str(_compiled(source)))
    except OSError as error:
        raise KernelsMissing(f"the compiled library cannot be opened ({error})") from None


def _compiled(source: Path) -> Path:
    """The path of the library for this source, compiler and processor."""
    compiler, version = _compiler()
    headers = sorted({*source.parent.glob("*.h"), *Path(__file__).parent.glob("*/*.h")})  # packages share some
    texts = (file.read_text("utf-8") for file in (source, *headers))
    made_of = *texts, *compiler, version, *_FLAGS, platform.machine(), *platform.libc_ver(), _processor()
    name = hashlib.blake2b("\0".join(made_of).encode(), digest_size=12).hexdigest()
    library = _cache() / f"{source.stem}-{name}.so"
    if library.is_file():
        return library
    try:
        with tempfile.TemporaryDirectory(dir=library.parent) as place:
            _run([*compiler, *_FLAGS, str(source), "-o", f"{place}/library.so"])
            Path(place, "library.so").replace(library)
    except OSError as error:
        raise KernelsMissing(f"the compiled library cannot be kept in {library.parent} ({error.strerror})") from None
    return library


def _compiler() -> tuple[list[str], str]:
    """The compiler command and its version."""
    if os.name != "posix":
        raise KernelsMissing("they are compiled on Linux and macOS only")
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or shutil.which(command[0]) is None:
        raise KernelsMissing(
            f"there is no C compiler ({' '.join(command) or 'CC is empty'}); install gcc or clang, or set CC"
        )
    return command, _run([*command, "--version"])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=_COMPILER_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise KernelsMissing(f"the C compiler ({command[0]}) took longer than {_COMPILER_SECONDS} seconds") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"status {error.returncode}")
        raise KernelsMissing(f"the C compiler ({command[0]}) failed: {first}") from None
    except OSError as error:
        raise KernelsMissing(f"the C compiler ({command[0]}) cannot be run ({error.strerror})") from None
    return done.stdout.decode(errors="replace")


def _cache() -> Path:
    """The cache folder. Only this user may write to it, because its libraries are executed."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
    except RuntimeError:
        raise KernelsMissing("there is no home folder for a cache; set XDG_CACHE_HOME") from None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
    except OSError as error:
        raise KernelsMissing(f"the cache {folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME") from None
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise KernelsMissing(f"others may write to the cache {folder}; chmod 700 it, or set XDG_CACHE_HOME")
    return folder


@functools.cache
def _processor() -> str:
    """The processor features that -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
