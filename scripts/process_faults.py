"""What can go wrong among several processes: each fault must end in one sentence, in limited time, with nothing lost.

    python scripts/process_faults.py [--only "full disk" …]

Each fault hits a small GPT of 60 steps in two processes, fully sharded. Then --resume must reach the bytes of an
unbroken run in one process. Prints a table: the fault, the seconds until all processes had ended, what they said.
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kill_test import write_recipe

STEPS, LIMIT = 60, 90.0  # seconds until all processes must have ended
SETTINGS = ("pretrain.pieces=8", "pretrain.threads=1", "processes.sharded=true")

# Python runs a file of this name first. Waits are shorter than minutes here; the rest is in the second process only.
BEGINNING = """
import os
from weft.train import process_group
process_group.JOIN_SECONDS, process_group.STEP_SECONDS = 10.0, 15.0
if os.environ.get("RANK") == "1" and not os.path.exists({done!r}):
    open({done!r}, "w").close()
    from weft.train import stored_parts
    from weft.train.engine import Engine
    {change}
"""
AT_A_STEP = """
    real = Engine.take_step
    def changed(self, pieces, number, rate=1.0):
        if number == 20:
            {change}
        return real(self, pieces, number, rate)
    Engine.take_step = changed
"""
NOT_A_NUMBER = AT_A_STEP.format(change="next(iter(self.weights)).to_local().data.fill_(float('nan'))")
OUT_OF_REACH = AT_A_STEP.format(change="import signal; os.kill(os.getpid(), signal.SIGSTOP)")
FULL_DISK = """
    def full(*given):
        if os.path.exists({checkpoint!r}):
            raise OSError(28, "No space left on device")
        return real_write(*given)
    real_write, stored_parts.write_tensors = stored_parts.write_tensors, full
"""


@dataclass
class Case:
    """A run that is to be broken."""

    place: Path
    recipe: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.place / "run"

    def start(self, *arguments: str, processes: int = 2, change: str = "pass", **environment: str) -> None:
        """`change`: of the second process, as code."""
        (self.place / "sitecustomize.py").write_text(BEGINNING.format(done=str(self.place / "done"), change=change))
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
        command = [sys.executable, *launcher, "-m", "weft", "pretrain", str(self.recipe), *SETTINGS, *arguments]
        path = os.pathsep.join(filter(None, (str(self.place), os.environ.get("PYTHONPATH"))))
        told = {**os.environ, "PYTHONPATH": path, **environment}
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        self.started.append(subprocess.Popen([*command, "-o", str(self.run)], env=told, **pipes))

    def wait_for(self, name: str) -> None:
        until = time.monotonic() + 120
        while not (self.run / "checkpoints" / name).exists():
            assert time.monotonic() < until, f"{name} did not come"
            assert self.started[-1].poll() is None, self.started[-1].communicate()[1]
            time.sleep(0.02)

    def workers(self) -> list[psutil.Process]:
        found = psutil.Process(self.started[0].pid).children()
        assert len(found) == 2, found
        return found

    def ended(self) -> tuple[float, str]:
        """Wait for the processes started last. Returns the seconds it took, and what they said."""
        began, process = time.monotonic(), self.started[-1]
        said = process.communicate(timeout=LIMIT)[1]
        return time.monotonic() - began, said


def digest(run: Path) -> str:
    return hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


def broken_by(number: signal.Signals, target: Callable[[Case], psutil.Process]) -> Callable[[Case], tuple[float, str]]:
    def break_it(case: Case) -> tuple[float, str]:
        case.start()
        case.wait_for("step-000006")
        workers = case.workers()
        target(case).send_signal(number)
        found = case.ended()
        left = psutil.wait_procs(workers, timeout=LIMIT)[1]
        assert not left, f"still there: {left}"
        return found

    return break_it


def launcher(case: Case) -> psutil.Process:
    return psutil.Process(case.started[0].pid)


def worker(case: Case) -> psutil.Process:
    return case.workers()[1]


def changed(change: str) -> Callable[[Case], tuple[float, str]]:
    def break_it(case: Case) -> tuple[float, str]:
        case.start(change=change.replace("{checkpoint!r}", repr(str(case.run / "checkpoints/step-000006"))))
        case.wait_for("step-000003")
        return case.ended()

    return break_it


def wrong_world(case: Case) -> tuple[float, str]:
    """Two processes come, each is told of three."""
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731", "WORLD_SIZE": "3"}
    for rank in ("0", "1"):
        case.start(processes=1, RANK=rank, **port)
    first, *_ = case.started
    found = case.ended()
    first.communicate(timeout=LIMIT)
    return found


def two_runs(case: Case) -> tuple[float, str]:
    case.start()
    case.wait_for("step-000003")
    case.start()
    found = case.ended()
    assert case.started[0].poll() is None, "the first run ended"
    said = case.started[0].communicate(timeout=LIMIT)[1]
    assert case.started[0].returncode == 0, said
    return found


def damaged(harm: Callable[[Path], object]) -> Callable[[Case], tuple[float, str]]:
    def break_it(case: Case) -> tuple[float, str]:
        broken_by(signal.SIGTERM, launcher)(case)
        newest = max((case.run / "checkpoints").glob("step-*"))
        harm(newest / "network-00002-of-00002.safetensors")
        case.start("--resume")
        return case.ended()

    return break_it


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


FAULTS: dict[str, tuple[Callable[[Case], tuple[float, str]], str]] = {  # and a part of the sentence
    "two of three processes come": (wrong_world, "weft: "),
    "a process that cannot be reached": (changed(OUT_OF_REACH), "has lost the others"),
    "two runs on one folder": (two_runs, "is in use by another run"),
    "a shard deleted": (damaged(Path.unlink), "Skipping this checkpoint"),
    "a shard damaged": (damaged(flip), "Skipping this checkpoint"),
    "NaN in one process": (changed(NOT_A_NUMBER), "training has diverged"),
    "full disk in one process": (changed(FULL_DISK), "No space left"),
    "Ctrl-C to torchrun": (broken_by(signal.SIGINT, launcher), "Stopped at step"),
    "SIGTERM to torchrun": (broken_by(signal.SIGTERM, launcher), "Stopped at step"),
    "SIGKILL to torchrun": (broken_by(signal.SIGKILL, launcher), "Stopped at step"),
    "Ctrl-C to one process": (broken_by(signal.SIGINT, worker), "Stopped at step"),
    "SIGTERM to one process": (broken_by(signal.SIGTERM, worker), "Stopped at step"),
    "SIGKILL to one process": (broken_by(signal.SIGKILL, worker), ""),  # torchrun tells it
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole = Case(Path(folder), write_recipe("gpt2", Path(folder), STEPS))
        whole.start(processes=1)
        assert whole.ended()[1] is not None
        expected = digest(whole.run)
        print("| fault | seconds | what was said |\n|---|---|---|", flush=True)
        for fault in options.only:
            seconds, sentence = survive(fault, Path(folder) / fault, whole.recipe, expected)
            print(f"| {fault} | {seconds:.0f} | {sentence} |", flush=True)


def survive(fault: str, place: Path, recipe: Path, expected: str) -> tuple[float, str]:
    """Break a run, and let it go on. Returns the seconds until it had ended, and what it said."""
    place.mkdir()
    case, (break_it, part) = Case(place, recipe), FAULTS[fault]
    try:
        seconds, said = break_it(case)
        lines = [line for line in said.splitlines() if part in line]
        assert lines or not part, said
        told = [line for line in said.splitlines() if line.startswith("weft: ")]
        assert not any("bug in weft" in line for line in told), told
        # After SIGKILL to torchrun nobody is left to end the others of two that stop at once.
        assert len(set(told)) <= 1 or fault == "two of three processes come", told
        case.start("--resume")
        said = case.ended()[1]
        assert case.started[-1].returncode == 0, said
        assert digest(case.run) == expected, "the weights differ"
    finally:
        for process in case.started:
            process.kill()
    shutil.rmtree(place)
    return seconds, (lines or ["-"])[-1].strip()


if __name__ == "__main__":
    main()
