"""How much memory is free."""

from pathlib import Path

_SYSTEM = Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_memory() -> int | None:
    """Bytes that the machine, or the container, can still give without swapping. None where the system does not tell;
    Linux does.
    """
    try:
        said = Path("/proc/meminfo").read_text("ascii")
        free = 1024 * int(said.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return None
    for limit, used in _LIMITS:  # of control groups, versions 2 and 1
        try:
            most, now = (int((_SYSTEM / name).read_text("ascii")) for name in (limit, used))
            cached = (_SYSTEM / used).with_name("memory.stat").read_text("ascii").split("inactive_file ")[1]
            free = min(free, most - now + int(cached.split()[0]))
        except (OSError, IndexError, ValueError):  # there is no such group, or it has no limit
            continue
    return max(free, 0)
