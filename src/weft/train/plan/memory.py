"""What becomes of freed memory while training: glibc can keep it in the process or return it to the system.

Every step frees and allocates the same large blocks. By default glibc returns them to the system each time, and the
system zeroes every page again: 30,000 page faults in a step of a BERT-mini, a tenth of its time. So they are kept.

Not with sharded weights. There whole blocks come and go between what stays, in many sizes, and kept memory falls to
pieces: FRAGMENTED.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of mallopt(3)
_OWN_MAPPING = 2**18  # bytes


def keep_freed_memory() -> None:
    """Use no separate mappings for large blocks, and return nothing. Does nothing without glibc."""
    _set({_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1})


def return_freed_memory() -> None:
    """Give each large block a mapping of its own, which goes back when it is freed. Does nothing without glibc."""
    _set({_MMAP_MAX: 2**16, _MMAP_THRESHOLD: _OWN_MAPPING, _TRIM_THRESHOLD: _OWN_MAPPING})


def _set(options: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        for option, value in options.items():
            mallopt(option, value)
