"""A service that watches a folder, in this process; and small runs, made up or real."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import yaml

from weft.serve.app import create_app
from weft.serve.arguments import address_of, open_listener
from weft.serve.run_service import RunService
from weft.serve.security import Security
from weft.serve.served import Service
from weft.serve.server import ServiceServer
from weft.watch.watcher import RunWatcher

ALICE = Path(__file__).parents[1] / "examples/alice.txt"
STEPS = 200  # of a real run: long enough to be stopped on its way
# What the page sees of `weft pretrain RUN`: a lock that is held, lines that come, a checkpoint after Ctrl-C, results.
PRETENDED = """
import fcntl, json, os, signal, socket, sys, time
run = sys.argv[2]
file, asked = os.path.join(run, "metrics.jsonl"), []
lock = open(os.path.join(run, ".lock"), "ab+")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
lock.truncate(0)
lock.write(f"process {os.getpid()} on {socket.gethostname()}, since 2026-01-01 00:00:00".encode())
lock.flush()
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
for step in range(sum(1 for _ in open(file)) + 1, 1501):
    with open(file, "a") as lines:
        lines.write(json.dumps({"step": step, "loss": 9 / step, "tokens": 64 * step, "seconds": step / 10}) + chr(10))
    if asked:
        os.makedirs(os.path.join(run, f"checkpoints/step-{step:06}"))
        sys.exit(130)
    time.sleep(0 if "--resume" in sys.argv else 0.05)
facts = json.load(open(os.path.join(run, "weft.json")))
json.dump({**facts, "results": {"parameters": 7}}, open(os.path.join(run, "weft.json"), "w"))
"""


@dataclass(frozen=True)
class Watching:
    address: str
    runs: RunService
    client: httpx.Client
    server: ServiceServer
    thread: threading.Thread

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(self.address + path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(self.address + path, json=body, **options)

    def ids(self) -> dict[str, str]:
        return {run["name"]: run["id"] for run in self.get("/runs").json()["runs"]}


@contextmanager
def watching(
    folder: Path, *, allow_control: bool = False, security: Security | None = None, port: int = 0
) -> Iterator[Watching]:
    runs = RunService(RunWatcher(folder), allow_control=allow_control)
    server = ServiceServer(create_app(Service([]), security, runs=runs))
    listener = open_listener("127.0.0.1", port)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    with httpx.Client(timeout=60) as client:
        found = Watching(address_of(listener), runs, client, server, thread)
        try:
            yield found
        finally:
            found.stop()


def line(step: int, loss: float = 3.0, **more: Any) -> str:
    facts = {"step": step, "tokens": 64 * step, "loss": loss, "grad_norm": 1.0, "lr": 0.001, **more}
    return json.dumps({**facts, "seconds": step / 10, "tokens_per_second": 640.0}) + "\n"


def make_run(folder: Path, metrics: str = "", *, steps: int = 100, checkpoint: int | None = None, **facts: Any) -> Path:
    """A run folder that nobody has trained."""
    folder.mkdir(parents=True)
    tree = {
        "name": folder.name,
        "model": {"family": "gpt2", "layers": 2, "width": 32},
        "pretrain": {"objective": "causal", "budget": f"{steps} steps", "batch_tokens": 64},
    }
    (folder / "weft.json").write_text(json.dumps({"weft": "0.1.0", "kind": "run", "asked": tree, **facts}))
    (folder / "recipe.yml").write_text(yaml.safe_dump(tree))
    (folder / "metrics.jsonl").write_text(metrics)
    if checkpoint is not None:
        (folder / f"checkpoints/step-{checkpoint:06}").mkdir(parents=True)
    return folder


def write_lock(folder: Path, process: int | None = None, host: str | None = None) -> None:
    told = f"process {process or os.getpid()} on {host or socket.gethostname()}, since 2026-01-01 00:00:00"
    (folder / ".lock").write_text(told)


def write_recipe(place: Path, steps: int = STEPS, seed: int = 1) -> Path:
    """A recipe in which nothing is left to be measured, so that two runs of it are the same."""
    (place / "book.txt").write_text(ALICE.read_text("utf-8")[:20_000])
    tree = {
        "name": "tiny",
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}, "documents": "block"},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 1},
        "pretrain": {
            "budget": f"{steps} steps", "sequence_length": 16, "batch_tokens": 64, "log_every": 1, "seed": seed,
            "validate_every": 100, "checkpoint_every": 100, "precision": "float32", "compile": False, "threads": 1,
        },
    }  # fmt: skip
    file = place / f"tiny-{seed}.yml"
    file.write_text(yaml.safe_dump(tree, sort_keys=False))
    return file


def start_run(recipe: Path, output: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "weft", "pretrain", str(recipe), "-o", str(output), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def write_pretended_weft(folder: Path) -> Path:
    """A folder for PYTHONPATH with a weft that trains nothing, but can be watched, stopped and resumed."""
    (folder / "weft").mkdir(parents=True)
    (folder / "weft/__init__.py").touch()
    (folder / "weft/__main__.py").write_text(PRETENDED)
    return folder


def numbers_in(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key not in ("seconds", "tokens_per_second")} for row in rows]


def wait_for(look: Any, seconds: float = 120.0) -> Any:
    """What `look` finds, once it finds something. Each look takes a request to the service."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := look():
            return found
    raise AssertionError("it did not happen")
