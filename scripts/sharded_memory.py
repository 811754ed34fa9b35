"""What each of several fully sharded processes holds, phase by phase, against its share.

    python scripts/sharded_memory.py [--processes 4] [--layers 32] [--width 512] [--optimizer adamw]

Share: (weights + gradients + optimizer state) / processes + activations of a piece. Measured: the largest resident
memory in the phase, above that of the same program with a tiny model, of the process that holds most. Goal: at most
1.15 shares.

The whole run is rehearsed: fresh weights, steps, a checkpoint, validation, the checkpoint read again, the model
gathered in the first process and written.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from weft.interchange.folder import Description, write_model
from weft.model.families import design
from weft.model.network import Architecture, count_parameters, outline
from weft.threads import use_threads
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.build import Built, fresh_network
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.pending_checkpoint import PendingCheckpoint
from weft.train.plan.memory import return_freed_memory
from weft.train.process_group import joined_processes
from weft.train.processes import Processes
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step
from weft.train.validation import validate

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from exact_vs_fast import MadeUpText

LENGTH, VOCABULARY, MB = 128, 8000, 1e6


def architecture(layers: int, width: int) -> Architecture:
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    shape = {"layers": layers, "width": width, "heads": max(1, width // 64), "positions": LENGTH}
    return design("gpt2", head="causal", vocabulary=VOCABULARY, **shape, **rates)[1]


class Rehearsal:
    """A run in phases, each a method."""

    def __init__(self, options: argparse.Namespace, layers: int, width: int, processes: Processes, place: Path) -> None:
        self.processes, self.place, self.shape = processes, place, architecture(layers, width)
        self.objective, samples = MadeUpText(), options.pieces * options.samples
        optimizer = OptimizerSpec(options.optimizer)
        self.spec = TrainSpec(2, samples, Schedule(2, "linear"), optimizer, pieces=options.pieces)
        self.order = Order((len(self.objective),), (1.0,), 0)

    def start(self) -> None:
        network = outline(self.shape).train()
        step = Step(network, self.objective)
        self.engine = Engine(step, self.spec.optimizer, pieces=self.spec.pieces, processes=self.processes)

    def steps(self) -> None:
        pieces_of = StepBatches([self.objective], self.order, self.spec, self.processes)
        for number in range(self.spec.steps):
            self.engine.take_step(pieces_of(number), number)

    def save(self) -> None:
        files = self.engine.checkpoint_files()
        PendingCheckpoint(self.place, 2, files, keep=1, state={}, processes=self.processes).finish()

    def validate(self) -> None:
        batches = [self.objective.batch([sample], [0], 0) for sample in range(8)]
        validate(self.engine.step.network, batches, processes=self.processes)

    def read(self) -> None:
        self.engine.restore_newest(self.place)

    def write(self) -> None:
        network, family = self.engine.step.network, self.shape.family
        del self.engine  # as at the end of a run
        whole = Built(network, self.shape, Description(family, "causal")).gathered(self.processes)
        if self.processes.is_first:
            write_model(whole.to_save(), whole.description, self.place / "model")

    def phases(self) -> dict[str, Callable[[], None]]:
        return {
            "fresh weights": self.start,
            "two steps": self.steps,
            "checkpoint": self.save,
            "validation": self.validate,
            "checkpoint read": self.read,
            "model written": self.write,
        }


def status(name: str) -> float:
    """A line of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def rehearse(options: argparse.Namespace) -> None:
    """In each process."""
    return_freed_memory()
    use_threads(1)
    with joined_processes() as processes, tempfile.TemporaryDirectory() as folder:
        processes = replace(processes, is_sharded=True)
        place = Path(processes.broadcast(folder))
        for phase in Rehearsal(options, 2, 64, processes, place / "tiny").phases().values():
            phase()  # libraries are loaded, buffers made
        before = status("VmRSS")
        for name, phase in Rehearsal(options, options.layers, options.width, processes, place / "run").phases().items():
            processes.barrier()
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            began = time.perf_counter()
            phase()
            found = processes.gather([status("VmHWM") - before, time.perf_counter() - began])
            if processes.is_first:
                print(name, *(max(each) for each in zip(*found, strict=True)), sep="\t", flush=True)


def activations_of(shape: Architecture, samples: int) -> float:
    """Bytes that the forward pass of a piece leaves for the backward pass."""
    network, objective = fresh_network(shape, 0).train(), MadeUpText()
    batch, losses = objective.batch(list(range(samples)), [0] * samples, 0), []
    objective.loss(network, batch, batch.counts).backward()  # tables are made
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        losses.append(objective.loss(network, batch, batch.counts))
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    return float(sum(event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--pieces", type=int, default=8)
    parser.add_argument("--samples", type=int, default=2, help="of a piece")
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    options = parser.parse_args()
    if "RANK" in os.environ:
        rehearse(options)
        return
    shape = architecture(options.layers, options.width)
    parameters, activations = count_parameters(outline(shape)), activations_of(shape, options.samples)
    states = 16 if options.optimizer == "adamw" else 12  # bytes per weight; Muon has one state
    share = states * parameters / options.processes + activations
    print(
        f"{parameters / 1e6:.1f} M weights, {options.processes} processes, {options.optimizer}, {options.pieces} pieces"
    )
    print(f"share: {share / MB:.0f} MB, of which activations {activations / MB:.0f} MB")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(options.processes)]
    command = [sys.executable, *launcher, *sys.argv]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    print("| phase | MB | of the share | seconds |\n|---|---|---|---|")
    for name, *numbers in (line.split("\t") for line in done.stdout.splitlines() if "\t" in line):
        held, seconds = map(float, numbers)
        print(f"| {name} | {held / MB:.0f} | {held / share:.2f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
