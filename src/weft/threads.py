"""The number of CPU threads, and how they wait for each other.

libgomp, the OpenMP runtime of torch's Linux wheels, lets a waiting thread spin for 300,000 rounds (milliseconds). On a
busy machine the spinning thread may occupy the core that the awaited thread needs: a training step was twenty times
slower than with sleeping threads. With more threads than cores libgomp spins only 1,000 rounds (microseconds), but it
does not know of other processes. So weft always sets 1,000.

libgomp reads its environment when it is loaded, so `import weft` sets it before torch is imported. Settings of the user
are kept.
"""

import math
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

SPINS = "1000"
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CGROUPS = Path("/sys/fs/cgroup")


def prepare_openmp(environment: MutableMapping[str, str] = os.environ, *, loaded: bool | None = None) -> None:
    """Sets the environment for an OpenMP that is loaded later, in this process or its children."""
    if "torch" in sys.modules if loaded is None else loaded:
        return
    if not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "passive"  # for Intel's runtime, which otherwise spins for 200 ms
        environment["GOMP_SPINCOUNT"] = SPINS
    quota = quota_of_cgroups()
    # OpenMP counts the cores that the process may run on and ignores a container's quota. With more threads than the
    # quota allows, all of them stop for the rest of each period of 0.1 s.
    if "OMP_NUM_THREADS" not in environment and quota is not None and quota < allowed_cores():
        environment["OMP_NUM_THREADS"] = str(max(1, math.ceil(quota)))


def allowed_cores() -> int:
    """The number of cores that the process may run on (taskset, cpusets)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """The number of allowed cores, limited by the container's quota."""
    quota = quota_of_cgroups()
    return allowed_cores() if quota is None else max(1, min(allowed_cores(), math.ceil(quota)))


def quota_of_cgroups(root: Path = CGROUPS, listed: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPU quota of the process's control groups in cores, the smallest of all levels; None: no limit."""
    quotas = [_quota(place) for place in _levels(root, listed)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _levels(root: Path, listed: Path) -> Iterator[Path]:
    try:
        lines = listed.read_text("utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        top = root if number == "0" else root / "cpu"  # cgroups v2 has one tree, v1 one per controller
        place = top / path.lstrip("/")
        yield from (level for level in (place, *place.parents) if level == top or top in level.parents)


def _quota(place: Path) -> float | None:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((place / name).read_text("utf-8") for name in names).split()
            if float(quota) > 0 and float(period) > 0:  # -1 and "max": no limit
                return float(quota) / float(period)
        except (OSError, ValueError):
            continue
    return None


@contextmanager
def thread_count_restored() -> Iterator[None]:
    """Restores torch's number of threads at the end of the block."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads(count: int | None) -> int:
    """Sets torch's number of threads if `count` is given. Returns the number in use."""
    import torch

    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()
