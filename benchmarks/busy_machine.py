"""Training speed on a busy machine, as a share of what a fair scheduler would give.

    python benchmarks/busy_machine.py [--rounds 5] [--seconds 3] [--layers 3 --width 96 --tokens 2048] [--quick]

Busy processes are Python loops. A fair scheduler gives every running thread the same time: t training threads beside k
busy processes get t / (t + k) of the quiet machine (with two cores 2/3 beside one busy process, 1/2 beside two).
The result is (busy speed / quiet speed) / (t / (t + k)); the quiet speed is that of the faster contestant.

Contestants: `weft` (OpenMP as `import weft` sets it up), `spinning` (OpenMP's defaults), `one thread` (no waiting). All
stay alive and take turns within each round. The machine should be quiet otherwise; other load is printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CONTESTANTS = {"weft": {}, "spinning": {"GOMP_SPINCOUNT": "300000"}, "one thread": {"OMP_NUM_THREADS": "1"}}
BUSY = (0, 1, 2)
AT_LEAST = 0.7


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of a turn")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens in a step")
    parser.add_argument("--quick", action="store_true", help="check that it runs; the speed means nothing")
    parser.add_argument("--contestant", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        train_on_demand(options.layers, options.width, options.tokens)
        return
    if options.quick:
        options.rounds, options.seconds = 1, 0.2
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [sys.executable, *sys.argv, "--contestant"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = os.getloadavg()[0]
    processes = {
        name: subprocess.Popen(command, env={**clean, **settings}, **pipes) for name, settings in CONTESTANTS.items()
    }
    threads = {name: int(process.stdout.readline()) for name, process in processes.items()}
    rates: dict[tuple[str, int], list[float]] = {}
    try:
        for turn in range(options.rounds):
            for count in BUSY:
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
                try:
                    time.sleep(0.2)  # until they run
                    for name in list(processes) if turn % 2 else reversed(list(processes)):
                        rates.setdefault((name, count), []).append(turn_of(processes[name], options.seconds))
                finally:
                    for process in busy:
                        process.kill()
                        process.wait()
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()
    report(rates, threads, others)


def turn_of(process: subprocess.Popen, seconds: float) -> float:
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def report(rates: dict[tuple[str, int], list[float]], threads: dict[str, int], others: float) -> None:
    speeds = {key: statistics.median(found) for key, found in rates.items()}
    quiet = max(speeds[name, 0] for name in CONTESTANTS)
    for count in BUSY:
        fair = quiet * threads["weft"] / (threads["weft"] + count)
        kept = {name: round(speeds[name, count] / fair, 2) for name in CONTESTANTS}
        line = {
            "benchmark": f"training beside {count} busy processes" if count else "training alone",
            "unit": "of the fair share of the quiet speed",
            **kept,
            "spread": [round(bound(rates["weft", count]) / fair, 2) for bound in (min, max)],
            "at_least": AT_LEAST,
            "reached": kept["weft"] >= AT_LEAST,
            "tokens_per_second": {name: round(speeds[name, count]) for name in CONTESTANTS},
            "threads": threads["weft"],
            "load_before": round(others, 2),
        }
        print(json.dumps(line), flush=True)


def train_on_demand(layers: int, width: int, tokens: int) -> None:
    """The contestant's process: reads seconds from standard input, prints tokens per second."""
    import weft  # isort: skip  # before torch: it sets OpenMP up
    import torch

    from weft.model.packed import pack
    from weft.train.optimizers import OptimizerSpec, make_optimizers

    chance = torch.Generator().manual_seed(0)
    network = weft.create("modernbert", vocabulary=4000, layers=layers, width=width, heads=width // 32).network.train()
    optimizers = make_optimizers(network, OptimizerSpec())
    batch = pack(torch.randint(4000, (tokens // 64, 64), generator=chance).tolist())

    def step() -> None:
        network(batch).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    step()
    step()
    print(torch.get_num_threads(), flush=True)
    for line in sys.stdin:
        count, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < float(line):
            step()
            count += 1
        print(count * tokens / spent, flush=True)


if __name__ == "__main__":
    main()
