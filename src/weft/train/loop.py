"""The one training loop: pre-training, fine-tuning and distillation differ in what they hand to it.

Step i is a pure function of the weights, the optimizer state and (seed, i): the samples come from the keyed order,
their masks from the samples' numbers, dropout from the step's seed. So a run that was killed and goes on from a
checkpoint ends with the same bytes as one that never stopped, and there is no other state to keep.

A loss or gradient that is not finite stops the run with a reason before it can touch the weights.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

from weft.errors import WeftError
from weft.folders import write_file
from weft.model.network import Network
from weft.objectives.objective import Batch, Objective, scaled_loss, scores
from weft.progress import say
from weft.tokens.order import Order, Place
from weft.train.checkpoints import restore_newest, save_checkpoint
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.schedules import Schedule

METRICS, LOG = "metrics.jsonl", "train.log"


@dataclass(frozen=True)
class TrainSpec:
    steps: int
    samples: int  # per step
    schedule: Schedule
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    seed: int = 0
    accumulation: int = 1  # pieces a step is cut into, to save memory
    clip: float = 1.0
    smoothing: float = 0.0
    log_every: int = 10
    validate_every: int = 200
    checkpoint_every: int = 500
    keep: int = 2
    patience: int | None = None  # validations without a better loss before the run stops early


class Interrupted(WeftError):
    """The user asked to stop; everything is saved."""

    exit_code = 130


class Diverged(WeftError):
    """The loss is no longer a number."""


def train(
    network: Network,
    objectives: Sequence[Objective],
    order: Order,
    spec: TrainSpec,
    folder: Path,
    *,
    validation: Sequence[Batch] = (),
    resume: bool = False,
) -> dict[str, Any]:
    """Train in place. `objectives[s]` makes batches of source `s`. Returns the last state: step, best, best_loss."""
    network.train()
    optimizers = make_optimizers(network, spec.optimizer)
    checkpoints = folder / "checkpoints"
    state: dict[str, Any] = {"step": 0, "best": None, "best_loss": None, "waited": 0}
    if resume and (found := restore_newest(checkpoints, network, optimizers)):
        state = found
        say(f"Going on from step {state['step']}.")
    record = _Record(folder, state["step"])

    def checkpoint(step: int) -> None:
        kept = {key: value for key, value in state.items() if key != "step"}
        save_checkpoint(checkpoints, step, network, optimizers, keep=spec.keep, state=kept)

    with _stop_signals() as stopped:
        for step in range(state["step"], spec.steps):
            loss, norm = _step(network, objectives, order, optimizers, spec, step)
            state["step"] = done = step + 1
            facts = {"step": done, "loss": loss, "grad_norm": norm, "lr": optimizers[-1].param_groups[0]["lr"]}
            is_last = done == spec.steps
            if validation and (is_last or done % spec.validate_every == 0):
                facts |= validate(network, validation)
                _remember(state, facts["validation_loss"], done)
            if is_last or done % spec.log_every == 0 or "validation_loss" in facts:
                record.write(facts, spec)
            early = spec.patience is not None and state["waited"] >= spec.patience
            if is_last or early or stopped() or done % spec.checkpoint_every == 0:
                checkpoint(done)
            if early:
                say(f"Stopping early at step {done}: {spec.patience} validations without a better loss.")
                break
            if stopped() and not is_last:
                raise Interrupted(f"Stopped at step {done} of {spec.steps}; --resume goes on from here.")
    return state


def validate(network: Network, batches: Sequence[Batch]) -> dict[str, float]:
    """Means over all batches: `validation_loss`, and for each head its loss and share of right answers."""
    network.eval()
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        for key, value in scores(network, batch).items():
            sums[key] = sums.get(key, 0.0) + value
        for kind, count in batch.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    network.train()
    means = {key: value / counts[key.partition("/")[2]] for key, value in sums.items()}
    facts = {"validation_loss": sum(value for key, value in means.items() if key.startswith("loss/"))}
    for kind in counts:
        facts[f"validation_{kind}_loss"] = means[f"loss/{kind}"]
        facts[f"validation_{kind}_accuracy"] = means[f"right/{kind}"]
    return facts


def _step(
    network: Network,
    objectives: Sequence[Objective],
    order: Order,
    optimizers: list[torch.optim.Optimizer],
    spec: TrainSpec,
    step: int,
) -> tuple[float, float]:
    torch.manual_seed(_mix(spec.seed, step))
    batches = list(_batches(objectives, order.batch(step, spec.samples), spec))
    totals = {kind: sum(batch.counts[kind] for batch in batches) for kind in batches[0].counts}
    loss = 0.0
    for batch in batches:
        part = scaled_loss(network, batch, totals, spec.smoothing)
        part.backward()
        loss += part.item()
    norm = float(clip_grad_norm_(network.parameters(), spec.clip if spec.clip > 0 else math.inf))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"At step {step + 1} the loss is {loss} and its gradient {norm}: training has diverged. The weights are as "
            "the last checkpoint has them; try a lower learning rate, a longer warm-up or stronger clipping."
        )
    set_rate(optimizers, spec.schedule(step))
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss, norm


def _batches(objectives: Sequence[Objective], places: list[Place], spec: TrainSpec) -> Iterator[Batch]:
    """The step's samples, source by source, in as many pieces as accumulation asks for."""
    size = -(-len(places) // spec.accumulation)
    for start in range(0, len(places), size):
        piece = places[start : start + size]
        for source, objective in enumerate(objectives):
            mine = [place for place in piece if place.source == source]
            if mine:
                yield objective.batch([place.sample for place in mine], [place.epoch for place in mine], spec.seed)


def _remember(state: dict[str, Any], loss: float, step: int) -> None:
    if state["best_loss"] is None or loss < state["best_loss"]:
        state.update(best=step, best_loss=loss, waited=0)
    else:
        state["waited"] += 1


def _mix(seed: int, step: int) -> int:
    """A seed for each step; neighbours have nothing in common."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


class _Record:
    """metrics.jsonl, train.log, and a line for people now and then. Lines after the step we go on from are dropped."""

    def __init__(self, folder: Path, step: int) -> None:
        self.folder, self.began, self.first, self.shown = folder, time.monotonic(), step, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        earlier = (folder / METRICS).read_text().splitlines() if step and (folder / METRICS).is_file() else []
        kept = [line for line in earlier if line.endswith("}") and json.loads(line)["step"] <= step]
        write_file(folder / METRICS, "".join(line + "\n" for line in kept).encode())

    def write(self, facts: dict[str, Any], spec: TrainSpec) -> None:
        seconds = time.monotonic() - self.began
        rate = (facts["step"] - self.first) / max(seconds, 1e-9)
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps({**facts, "seconds": round(seconds, 3), "steps_per_second": round(rate, 3)}) + "\n")
        left = (spec.steps - facts["step"]) / rate
        line = f"step {facts['step']}/{spec.steps}  loss {facts['loss']:.4f}"
        if "validation_loss" in facts:
            line += f"  validation {facts['validation_loss']:.4f}"
        line += f"  {rate:.1f} steps/s  {left:.0f} s left"
        with (self.folder / LOG).open("a") as file:
            file.write(time.strftime("%Y-%m-%d %H:%M:%S ") + line + "\n")
        if seconds - self.shown >= 5 or "validation_loss" in facts or facts["step"] == spec.steps:
            self.shown = seconds
            say(line)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a stop after the step; a second Ctrl-C does not wait."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    earlier = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
