"""Fair comparisons on one machine: contestants take turns for several rounds. The result is the ratio of their medians;
the spread is the smallest and largest ratio of a single round, and shows how noisy the machine was.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

import torch


def matmul_peak(seconds: float = 1.0, precision: torch.dtype = torch.float32) -> float:
    """The fastest matrix product of this machine in FLOP/s: the upper limit."""
    n = 1024
    a, b = (torch.randn(n, n).to(precision) for _ in range(2))
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
    """Rates (`work` per second) of each contestant, one per round, after an untimed warm-up turn. `prepare` runs before
    each turn of its contestant, untimed.
    """
    for run in contestants.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        names = list(contestants)
        for name in names if turn % 2 else reversed(names):  # so that nobody always goes first
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


class Trainee(Protocol):
    """A contestant that trains in its own process."""

    precision: torch.dtype  # FLOP of its matrix products

    def prepare(self, steps: int) -> None:
        """Untimed."""

    def train(self, steps: int) -> tuple[int, float]:
        """Returns (text tokens, FLOP)."""


def be(trainee: Trainee) -> None:
    """The contestant's process: reads a number of steps from standard input, prints its rate."""
    for line in sys.stdin:
        trainee.prepare(int(line))
        began = time.perf_counter()
        tokens, flops = trainee.train(int(line))
        seconds = time.perf_counter() - began
        share = flops / seconds / matmul_peak(0.5, trainee.precision)
        print(json.dumps({"rate": tokens / seconds, "share": share}), flush=True)


def compare_training(name: str, what: str, at_least: float, rounds: int, steps: int, peer: str = "Trainer") -> None:
    """Starts this script once per contestant, with --only and --who, and lets them take turns."""
    commands = {who: [sys.executable, *sys.argv, "--only", name, "--who", who] for who in ("weft", peer)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {who: subprocess.Popen(command, **pipes) for who, command in commands.items()}
    turns: dict[str, list[dict]] = {who: [] for who in processes}
    for turn in range(rounds + 1):
        for who in list(processes) if turn % 2 else reversed(list(processes)):  # so that nobody always goes first
            process = processes[who]
            process.stdin.write(f"{steps if turn else 2}\n")
            process.stdin.flush()
            while not (line := process.stdout.readline()).startswith(
                '{"rate"'
            ):  # the Trainer prints to standard output
                assert line or process.poll() is None, f"{who} ended"
            turns[who].append(json.loads(line))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    rates = {who: [found["rate"] for found in all_turns[1:]] for who, all_turns in turns.items()}
    share = statistics.median(found["share"] for found in turns["weft"][1:])
    report(what, rates, peer, at_least, share_of_matmul_peak=round(share, 2))
