"""Contestants on the same machine in the same minutes: they take turns, several rounds, and the ratio of their
medians is what counts. The spread is the smallest and largest ratio of a single round, which tells how noisy the
machine was.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch


def matmul_peak(seconds: float = 1.0) -> float:
    """The best fp32 matrix product this machine does, in FLOP/s: the limit to measure against."""
    n = 1024
    a, b = torch.randn(n, n), torch.randn(n, n)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * n**3 / best


def race(
    contestants: dict[str, Callable[[], None]],
    *,
    rounds: int = 7,
    work: float = 1.0,
    prepare: dict[str, Callable[[], None]] | None = None,
) -> dict[str, list[float]]:
    """Rates (`work` per second) of each contestant, a number per round; one untimed turn each before. What `prepare`
    has for a contestant is done before each of its turns, untimed.
    """
    for run in contestants.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        names = list(contestants)
        for name in names if turn % 2 else reversed(names):  # nobody always goes first
            (prepare or {}).get(name, lambda: None)()
            began = time.perf_counter()
            contestants[name]()
            rates[name].append(work / (time.perf_counter() - began))
    return rates


def report(
    what: str, rates: dict[str, list[float]], peer: str, at_least: float, unit: str = "tokens/s", **facts
) -> dict:
    """Print one JSON line: weft's rate, the peer's, their ratio and its spread."""
    ratios = [ours / theirs for ours, theirs in zip(rates["weft"], rates[peer], strict=True)]
    ours, theirs = (statistics.median(rates[name]) for name in ("weft", peer))
    line = {
        "benchmark": what,
        "unit": unit,
        "weft": round(ours),
        peer: round(theirs),
        "ratio": round(ours / theirs, 2),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "at_least": at_least,
        "reached": ours / theirs >= at_least,
        **facts,
    }
    print(json.dumps(line), flush=True)
    return line
