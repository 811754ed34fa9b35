"""How many CPU threads there are, and how they wait for each other.

libgomp, OpenMP's runtime in torch's Linux wheels, lets a thread that waits for the others spin for 300,000 rounds, some
milliseconds. Beside busy processes the thread that is waited for does not run then, because the core is taken, perhaps
by the one that spins: a training step was twenty times slower than with threads that go to sleep. libgomp itself spins
1,000 rounds, some microseconds, where it knows that there are more threads than cores; it cannot know of other
processes. So here that is the rule.

libgomp reads its environment when it is loaded, so `import weft` sets it before anything imports torch. What the user
has set stays.
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
    """Settings for an OpenMP that is loaded later, in this process or in those it starts."""
    if "torch" in sys.modules if loaded is None else loaded:
        return
    if not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "passive"  # for Intel's runtime, which spins for 200 ms
        environment["GOMP_SPINCOUNT"] = SPINS
    quota = quota_of_cgroups()
    # OpenMP goes by the cores that the process may run on. A container's quota is another matter: with more threads
    # than it pays for, all of them stop for the rest of each tenth of a second.
    if "OMP_NUM_THREADS" not in environment and quota is not None and quota < allowed_cores():
        environment["OMP_NUM_THREADS"] = str(max(1, math.ceil(quota)))


def allowed_cores() -> int:
    """Those that the process may run on (taskset, cpusets)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """As many as there is work for: allowed, and paid for by the quota of the container."""
    quota = quota_of_cgroups()
    return allowed_cores() if quota is None else max(1, min(allowed_cores(), math.ceil(quota)))


def quota_of_cgroups(root: Path = CGROUPS, listed: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores' worth of time that the process's control groups allow, the least of all levels; none: no limit."""
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
        top = root if number == "0" else root / "cpu"  # the second version has one tree, the first one for each
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
    """Around a run that may ask for another number of threads than the rest of the process."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads(count: int | None) -> int:
    """So many of torch's threads from now on, if said; how many there are."""
    import torch

    if count is not None:
        torch.set_num_threads(count)
    return torch.get_num_threads()
