"""The speed of several models, measured in one run.

The models take turns: a round times each of them once, the next round in another order. So a moment in which the
machine is busy slows all of them, and the ratio of two medians over rounds is steady where single times are not.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clock:
    """In seconds. `cpu` counts the time of all threads."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class TimedWork:
    """What is timed of a model."""

    alone: Callable[[int], object]  # one text by itself, given by its number
    together: Callable[[Sequence[int]], object]  # many texts, in batches as the model reads them


_Seconds = tuple[list[float], float, float]  # of each text alone, of many together, of the processor for these


@dataclass(frozen=True)
class Times:
    """Seconds of one model: `alone` (rounds, texts), `together` and `cpu` (rounds,)."""

    alone: np.ndarray
    together: np.ndarray
    cpu: np.ndarray


@dataclass(frozen=True)
class Ratio:
    """How many times faster: the ratio of medians, and the lowest and the highest ratio of a round."""

    value: float
    low: float
    high: float


def take_turns(
    works: Sequence[TimedWork], alone: Sequence[int], together: Sequence[int], rounds: int, clock: Clock
) -> list[Times]:
    """`alone`, `together`: numbers of the texts that are timed in each round."""
    for work in works:  # the first call prepares weights and allocates memory
        work.alone(alone[0])
    measured: list[list[_Seconds]] = [[] for _ in works]
    for number in range(rounds):
        for place in range(len(works)):
            which = (place + number) % len(works)
            measured[which].append(_round(works[which], alone, together, clock))
    return [Times(*(np.asarray(part) for part in zip(*each, strict=True))) for each in measured]


def _round(work: TimedWork, alone: Sequence[int], together: Sequence[int], clock: Clock) -> _Seconds:
    singles = []
    for text in alone:
        began = clock.wall()
        work.alone(text)
        singles.append(clock.wall() - began)
    began, cpu = clock.wall(), clock.cpu()
    work.together(together)
    return singles, clock.wall() - began, clock.cpu() - cpu


def faster(before: np.ndarray, after: np.ndarray) -> Ratio:
    """From the seconds of each round."""
    each = before / np.maximum(after, 1e-12)
    value = np.median(before) / max(float(np.median(after)), 1e-12)
    return Ratio(float(value), float(each.min()), float(each.max()))
