"""One thread or all of them for a step, or a small batch: whichever was faster lately.

Threads meet about a hundred times in a step. Where other processes use the cores as well, a thread often waits for one
that is not running: ten times as long as the step takes alone. The number of threads does not change the result.
"""

import statistics
from collections import deque

_KEPT_TIMES = 5
_TRY_EVERY = 64  # steps


class ThreadChoice:
    def __init__(self) -> None:
        self._times: dict[tuple[int, int], deque[float]] = {}  # by the size of a step and the number of threads
        self._steps: dict[int, int] = {}

    def pick(self, entries: int, most: int) -> int:
        """The number of threads for a step of so many entries."""
        if most == 1:
            return 1
        size = entries.bit_length()
        step = self._steps[size] = self._steps.get(size, -1) + 1
        times = [self._times.get((size, count)) for count in (1, most)]
        if step < 2 * _KEPT_TIMES:  # at first in turns
            return most if step % 2 else 1
        alone, together = (statistics.median(found) if found else float("inf") for found in times)
        best, other = (1, most) if alone < together else (most, 1)
        return other if step % _TRY_EVERY == 0 else best

    def note(self, entries: int, count: int, seconds: float) -> None:
        """How long the step took."""
        self._times.setdefault((entries.bit_length(), count), deque(maxlen=_KEPT_TIMES)).append(seconds)
