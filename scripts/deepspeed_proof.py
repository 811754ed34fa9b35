"""Train small models by each stage of DeepSpeed's ZeRO and by our own loop, and compare losses and weights.

    python scripts/deepspeed_proof.py --models gpt2 bert tag

Steps have clipping, accumulation, dropout and sequences of unequal length. Every stage trains on two processes from
the beginning; it continues a run of our loop, and our loop one of DeepSpeed, on other numbers of processes. Runs are
stopped by SIGTERM. At the end no file may be a pickle.

A yardstick: our own loop with two threads instead of one, which also adds up in another order. At four times the
learning rate that alone changes GPT-2's weights by 4e-5: where a gradient is nearly zero, AdamW's first steps are as
long as elsewhere, and rounding decides their sign.
"""

import argparse
import pickletools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file

from kill_test import TASKS, losses, write_recipe

STEPS, STOP, TOLERANCE = 20, 9, 1e-5


class Part(NamedTuple):
    """How a part of a run is computed. `zero`: None is our own loop."""

    processes: int
    zero: int | None = None
    threads: int = 1

    def __str__(self) -> str:
        engine = "own loop" if self.zero is None else f"ZeRO {self.zero}"
        return f"{engine} on {self.processes}{', 2 threads' if self.threads == 2 else ''}"


def start(recipe: Path, folder: Path, part: Part) -> subprocess.Popen:
    stage = "finetune" if recipe.stem in TASKS else "pretrain"
    chosen = ("optimizer=adamw", "learning_rate=0.001", "pieces=8", "clip=0.3", f"threads={part.threads}")
    settings = [f"{stage}.{one}" for one in chosen]
    if part.zero is not None:
        settings += ["processes.engine=deepspeed", f"processes.zero={part.zero}"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(part.processes)] if part.processes > 1 else []
    command = [sys.executable, *launcher, "-m", "weft", stage, str(recipe), *settings, "-o", str(folder), "--resume"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def run(recipe: Path, folder: Path, *parts: Part) -> tuple[float, list[int]]:
    """Every part but the last is stopped. Returns the seconds of all, and the steps at which they stopped."""
    began, stops = time.monotonic(), []
    for part in parts[:-1]:
        process = start(recipe, folder, part)
        while process.poll() is None and not (folder / f"checkpoints/step-{STOP:06}").is_dir():
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=300)
        assert process.returncode != 0, said
        stops.append(max(int(place.name[5:]) for place in (folder / "checkpoints").glob("step-*")))
    process = start(recipe, folder, parts[-1])
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return time.monotonic() - began, stops


def differences(one: Path, other: Path) -> tuple[float, float]:
    """The largest of a loss, and that of all weights together; relative."""
    series = [[line["loss"] for line in losses(folder)] for folder in (one, other)]
    of_losses = max(abs(a - b) / abs(a) for a, b in zip(*series, strict=True))
    first, second = (load_file(folder / "model/model.safetensors") for folder in (one, other))
    a, b = (torch.cat([weights[name].double().flatten() for name in first]) for weights in (first, second))
    return of_losses, float((a - b).norm() / a.norm())


def pickles(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and is_pickle(file.read_bytes())]


def is_pickle(data: bytes) -> bool:
    """Or an archive of torch.save."""
    try:
        return data.startswith(b"PK") or bool(list(pickletools.genops(data)))
    except ValueError:  # an unknown code
        return False


def prove(model: str, folder: Path) -> bool:
    recipe, own = write_recipe(model, folder, STEPS), Part(1)
    print(f"\n{model}\n{'':36}{'losses':>9}{'weights':>9}{'stopped at':>12}{'seconds':>9}", flush=True)
    seconds, _ = run(recipe, folder / "own", own)
    print(f"{own!s:36}{'':30}{seconds:9.0f}", flush=True)
    chains = [(Part(1, threads=2),), *((Part(2, zero),) for zero in range(4))]
    chains += [parts for zero in range(4) for parts in ((own, Part(2, zero)), (Part(2, zero), Part(3)))]
    chains += [(Part(2, 3), Part(3, 1)), (Part(3, 1), Part(2, 3))]
    is_right = True
    for number, parts in enumerate(chains):
        seconds, stops = run(recipe, folder / str(number), *parts)
        found = differences(folder / "own", folder / str(number))
        is_right = is_right and max(found) < TOLERANCE
        said = "{:9.1e}{:9.1e}".format(*found) + f"{', '.join(map(str, stops)):>12}{seconds:9.0f}"
        print(f"{' → '.join(map(str, parts)):36}{said}", flush=True)
    assert not (bad := pickles(folder)), bad
    return is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["gpt2", "bert"], help="of kill_test.py")
    models = parser.parse_args().models
    right = []
    for model in models:
        with tempfile.TemporaryDirectory() as place:
            right.append(prove(model, Path(place)))
    assert all(right), f"a difference is above {TOLERANCE:g}"
    print(f"\nAll differences are below {TOLERANCE:g}, and no file is a pickle.")


if __name__ == "__main__":
    main()
