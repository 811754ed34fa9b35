"""What the same bytes cost: exact training in two processes of one thread each against `processes: {exact: false}`.

    python benchmarks/exact_vs_fast.py [--rounds 9] [--quick]

GPT-2 of 4 layers, 256 wide, 8,000 tokens, AdamW, steps of 8,192 tokens in sequences of 128; exact in 8 pieces.

1. Data parallel.
2. Fully sharded. The fast way computes a process's share at once: weights are gathered once per step, and the
   activations of four pieces are in memory together.
3. Fully sharded, with as much memory for both: the fast way accumulates over four micro-batches.

All contestants live in the same two processes and take turns, a step each.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import torch

import weft
from contest import race, report
from weft.model.packed import pack
from weft.objectives.objective import Batch, HeadObjective
from weft.threads import use_threads
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.plan.memory import keep_freed_memory
from weft.train.process_group import joined_processes
from weft.train.processes import Processes
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

LENGTH, VOCABULARY, TOKENS, PIECES, SAMPLES = 128, 8000, 8192, 8, 10_000
COMPARISONS = {  # description: sharded, accumulation of the fast way
    "data parallel": (False, 1),
    "fully sharded": (True, 1),
    "fully sharded, equal memory": (True, PIECES // 2),
}
AT_LEAST = 0.9


class MadeUpText(HeadObjective):
    """Causal language modelling of random tokens: the cost of a step does not depend on them."""

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        drawn = [torch.Generator().manual_seed(sample) for sample in samples]
        rows = [torch.randint(VOCABULARY, (LENGTH,), generator=one).tolist() for one in drawn]
        targets = torch.tensor(rows).flatten()
        return Batch(pack(rows), targets, counts={"causal": len(targets)})


def trainee(processes: Processes, accumulation: int, tokens: int) -> Callable[[], None]:
    """A function that takes a training step."""
    shape = {"layers": 4, "width": 256, "heads": 4, "vocabulary": VOCABULARY, "positions": LENGTH}
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    network = weft.create("gpt2", **shape, **rates).network.train()
    pieces = PIECES if processes.is_exact else processes.world
    schedule = Schedule(10**6, "linear")
    spec = TrainSpec(
        10**6, tokens // LENGTH, schedule, OptimizerSpec("adamw"), pieces=pieces, accumulation=accumulation
    )
    objective = MadeUpText()
    engine = Engine(Step(network, objective), spec.optimizer, pieces=pieces, processes=processes)
    pieces_of = StepBatches([objective], Order((SAMPLES,), (1.0,), 0), spec, processes)
    step = 0

    def take_step() -> None:
        nonlocal step
        engine.take_step(pieces_of(step), step)
        processes.add_up({"tokens": tokens})  # as the loop does
        step += 1

    return take_step


def compete(options: argparse.Namespace) -> None:
    """In each of the two processes."""
    keep_freed_memory()
    use_threads(1)
    tokens = TOKENS // 4 if options.quick else TOKENS
    with joined_processes() as processes:
        for name, (sharded, accumulation) in COMPARISONS.items():
            exact = replace(processes, is_sharded=sharded)
            contestants = {
                "weft": trainee(exact, 1, tokens),
                "fast": trainee(replace(exact, is_exact=False), accumulation, tokens),
            }
            ready = dict.fromkeys(contestants, processes.barrier)
            rates = race(contestants, rounds=1 if options.quick else options.rounds, work=tokens, prepare=ready)
            if processes.is_first:
                report(f"exact training in two processes, {name}", rates, "fast", AT_LEAST)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", help="not used: the text is made up")
    options = parser.parse_args()
    if "RANK" in os.environ:
        compete(options)
        return
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *launcher, *sys.argv], check=True, env=environment)


if __name__ == "__main__":
    main()
