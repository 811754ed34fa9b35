"""Watch many long runs at once: how smooth is the page, what does a look cost, and what does it cost the training?

    python scripts/watch_many_runs.py                 # 50 runs of 100,000 lines, a few minutes
    python scripts/watch_many_runs.py --training 5    # also a real run, watched and alone, five times each

Made-up runs are written to a temporary folder. `weft page` serves it; Chromium opens one run, then all of them, while
some of the runs keep growing. Printed are the longest gap between two animation frames, the memory of the service, and
the time of its answers. The training run is timed alternately with and without a page that polls it.
"""

import argparse
import http.client
import json
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import yaml

ROOT = Path(__file__).parent.parent
MOST_FRAME = 100.0  # milliseconds
KEYS = "loss,validation_loss,grad_norm,lr,tokens_per_second,share_of_peak"  # of the page's charts
GROWING = 5  # runs that get new lines while they are watched
TINY = {
    "name": "timed",
    "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.05}},
    "tokenizer": {"kind": "bpe", "vocab_size": 1000},
    "model": {"family": "gpt2", "layers": 4, "width": 128, "heads": 4},
    "pretrain": {
        "budget": "120 steps", "sequence_length": 128, "batch_tokens": 2048, "log_every": 1, "validate_every": 40,
        "checkpoint_every": 60, "precision": "float32", "compile": False, "threads": 1,
    },
}  # fmt: skip


def metric_lines(start: int, count: int, seed: int) -> tuple[str, str]:
    """Lines of metrics.jsonl and of train.log: a loss that falls, with noise and a spike now and then."""
    chance = random.Random(seed * 1_000_003 + start)
    end, power, floor = 100_000, 0.12 + 0.01 * (seed % 7), 1.5 + 0.05 * (seed % 11)
    metrics, log = [], []
    for step in range(start + 1, start + count + 1):
        loss = floor + 8 * step**-power + chance.gauss(0, 0.05) + (3.0 if chance.random() < 1e-4 else 0.0)
        norm, rate = 1 + chance.random(), 0.003 * (1 - step / (1.2 * end))
        speed = 41_000 + 900 * math.sin(step / 900) + 100 * (seed % 5)
        line = (
            f'{{"step": {step}, "tokens": {step * 4096}, "loss": {loss:.6f}, "grad_norm": {norm:.5f}, "lr": {rate:.7f}'
        )
        if step % 500 == 0:
            line += f', "validation_loss": {loss + 0.05:.6f}, "perplexity": {math.exp(loss):.4f}'
            if step % 5000 == 0:
                line += f', "sample": "At step {step} the model wrote: Once upon a time there was a girl"'
        metrics.append(f'{line}, "seconds": {step * 0.1:.3f}, "tokens_per_second": {speed:.1f}}}')
        log.append(
            f"2026-05-01 10:00:00 step {step:,}/{end:,}  loss {loss:.4f}  {speed:,.0f} tokens/s  "
            f"{37 + seed % 9}% of the matmul peak  1:02:03 left"
        )
    return "\n".join([*metrics, ""]), "\n".join([*log, ""])


def write_run(folder: Path, lines: int, seed: int, *, finished: bool = False, steps: int = 100_000) -> None:
    """A run folder as `weft pretrain` leaves it, without weights."""
    folder.mkdir(parents=True)
    tree = {
        "name": folder.name,
        "corpus": {"sources": [{"path": "/data/books"}]},
        "model": {"family": "gpt2", "layers": 6 + seed % 3, "width": 256, "heads": 8},
        "pretrain": {"objective": "causal", "budget": f"{steps} steps", "batch_tokens": 4096, "seed": seed},
    }
    (folder / "recipe.yml").write_text(yaml.safe_dump(tree, sort_keys=False))
    facts = {"weft": "0.1.0", "kind": "run", "asked": tree, "inputs": f"{seed:064x}"}
    if finished:
        facts["results"] = {"steps": lines, "parameters": 5_100_000, "validation": {"validation_loss": 3.2}}
    (folder / "weft.json").write_text(json.dumps(facts))
    metrics, log = metric_lines(0, lines, seed)
    (folder / "metrics.jsonl").write_text(metrics)
    (folder / "train.log").write_text(log)
    (folder / "checkpoints" / f"step-{lines:06}").mkdir(parents=True)


def hold_lock(folder: Path) -> None:
    """As a run does that is running: this process stands for it."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    (folder / ".lock").write_text(f"process {os.getpid()} on {os.uname().nodename}, since {since}")


@contextmanager
def page_of(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address of `weft page`, and its process."""
    command = [sys.executable, "-m", "weft", "page", str(folder), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield json.loads(process.stdout.readline())["address"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


class Growth(threading.Thread):
    """Adds lines to some runs, as training does."""

    def __init__(self, folders: list[Path], lines: int) -> None:
        super().__init__(daemon=True)
        self.folders, self.lines, self.ends = folders, lines, threading.Event()

    def run(self) -> None:
        while not self.ends.wait(0.25):
            for seed, folder in enumerate(self.folders):
                metrics, log = metric_lines(self.lines, 3, seed)
                for name, text in (("metrics.jsonl", metrics), ("train.log", log)):
                    with (folder / name).open("a") as file:
                        file.write(text)
            self.lines += 3


def poll_times(address: str, times: int = 50) -> dict[str, float]:
    """Milliseconds of an answer: the whole list, what is new in it, the first piece of a curve, what is new in it."""
    with httpx.Client(base_url=address, timeout=120) as client:
        began = time.perf_counter()
        told = client.get("/runs").json()
        found = {"first list": 1000 * (time.perf_counter() - began)}
        chosen = f"/runs/{told['ids'][-1]}/curves?keys={KEYS}"
        began = time.perf_counter()
        curve = client.get(chosen).json()
        while curve["read"] < 1:
            curve = client.get(chosen).json()
        found["whole curve read"] = 1000 * (time.perf_counter() - began)
        for name, path in (("list", "/runs?since={version}"), ("curve", chosen + "&since={cursor}")):
            spent = []
            for _ in range(times):
                version = client.get("/runs").json()["version"]
                began = time.perf_counter()
                client.get(path.format(version=version, cursor=curve["cursor"])).raise_for_status()
                spent.append(1000 * (time.perf_counter() - began))
            found[f"{name}, nothing new"] = statistics.median(spent)
    return found


FRAMES = """() => {
  const seen = (window.frames_seen = { largest: 0, count: 0, longest_task: 0 });
  let last = performance.now();
  const look = (now) => {
    if (seen.count++ > 0) seen.largest = Math.max(seen.largest, now - last);
    last = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) seen.longest_task = Math.max(seen.longest_task, one.duration);
  }).observe({ entryTypes: ["longtask"] });
}"""
RESET = "() => Object.assign(window.frames_seen, { largest: 0, count: 0, longest_task: 0 })"


def drive(address: str, seconds: float) -> dict[str, Any]:
    """Chromium on the page: one run, then all, each watched for a while. The largest gap between frames of each."""
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {}
    ids = httpx.get(f"{address}/runs", timeout=60).json()["ids"]
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, chosen in (("one run", ids[:1]), (f"{len(ids)} runs", ids)):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{address}/#/watch/{','.join(chosen)}")
            page.wait_for_selector(".u-over", timeout=120_000)
            page.evaluate(FRAMES)
            page.wait_for_function("() => !document.querySelector('.reading')", timeout=600_000)
            reading = page.evaluate("() => ({...window.frames_seen})")
            page.evaluate(RESET)
            page.wait_for_timeout(1000 * seconds)
            page.mouse.move(800, 600)
            page.mouse.move(900, 650, steps=30)
            found[name] = {"while reading": reading, "while watching": page.evaluate("() => window.frames_seen")}
            page.close()
        browser.close()
    return found


def training_cost(rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds of a real run, alternately with a page that is polled every second and without."""
    (folder / "book.txt").write_text((ROOT / "examples/alice.txt").read_text("utf-8"))
    (folder / "recipe.yml").write_text(yaml.safe_dump(TINY, sort_keys=False))
    spent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with page_of(folder) as (address, service):
        for number in range(2 * rounds):
            is_watched = number % 2 == (number // 2) % 2  # in both orders: a machine may become slower
            spent[is_watched].append(timed_run(folder, folder / f"run-{number}", address if is_watched else None))
            shutil.rmtree(folder / f"run-{number}")
        used = sum(service.cpu_times()[:2])
    found: dict[str, Any] = {"service, processor seconds in all": round(used, 2)}
    for place, name in enumerate(("clock", "processor")):
        watched, alone = ([round(one[place], 2) for one in spent[which]] for which in (True, False))
        ratio = statistics.median(watched) / statistics.median(alone)
        found[name] = {"watched": watched, "alone": alone, "ratio of medians": round(ratio, 4)}
    return found


def timed_run(place: Path, output: Path, address: str | None) -> tuple[float, float]:
    """Seconds of the training steps by the run's own clock, and seconds of processor time of the whole run."""
    command = [sys.executable, "-m", "weft", "pretrain", str(place / "recipe.yml"), "-o", str(output), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    look = None if address is None else Look(address)
    while process.poll() is None:
        if look is not None:
            look.again()
        time.sleep(1.0)
    assert process.returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = (output / "metrics.jsonl").read_text().splitlines()[-1]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(json.loads(last)["seconds"]), used


class Look:
    """Asks for what the page asks for when it shows a run. A plain connection: a client library would cost more than
    the service, on a machine where both are.
    """

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        self.version, self.cursors = "", {}

    def again(self) -> None:
        told = self.get(f"/runs{self.version}")
        self.version = f"?since={told['version']}"
        for run in told["runs"]:
            path = f"/runs/{run['id']}/curves?keys={KEYS}&width=1{self.cursors.get(run['id'], '')}"
            self.cursors[run["id"]] = f"&since={self.get(path)['cursor']}"
            self.get(f"/runs/{run['id']}?only=log")

    def get(self, path: str) -> dict[str, Any]:
        self.connection.request("GET", path)
        return json.loads(self.connection.getresponse().read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="0: only the training")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="to watch each view")
    parser.add_argument("--training", type=int, default=0, metavar="ROUNDS", help="time a real run, watched and alone")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.runs:
        with tempfile.TemporaryDirectory() as place:
            results |= watch_many(Path(place), options.runs, options.lines, options.seconds)
    if options.training:
        with tempfile.TemporaryDirectory() as place:
            results["training"] = training_cost(options.training, Path(place))
    print(json.dumps(results, indent=2))
    frames = [one["while watching"]["largest"] for one in results.get("frames", {}).values()]
    print(f"largest gap between frames while watching: {max(frames, default=0):.0f} ms (limit {MOST_FRAME:.0f})")
    sys.exit(max(frames, default=0) > MOST_FRAME)


def watch_many(place: Path, runs: int, lines: int, seconds: float) -> dict[str, Any]:
    folders = [place / f"run-{number:02}" for number in range(runs)]
    began = time.perf_counter()
    for number, folder in enumerate(folders):
        write_run(folder, lines, number)
    for folder in folders[:GROWING]:
        hold_lock(folder)
    print(f"{runs} runs of {lines:,} lines written in {time.perf_counter() - began:.0f} s", flush=True)
    found: dict[str, Any] = {}
    with page_of(place) as (address, service):
        found["memory before, MB"] = round(service.memory_info().rss / 1e6)
        found["milliseconds"] = {name: round(value, 1) for name, value in poll_times(address).items()}
        growth = Growth(folders[:GROWING], lines)
        growth.start()
        found["frames"] = drive(address, seconds)
        growth.ends.set()
        growth.join()
        found["memory after, MB"] = round(service.memory_info().rss / 1e6)
    return found


if __name__ == "__main__":
    main()
