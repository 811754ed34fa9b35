"""The one training loop: pre-training, fine-tuning and distillation differ in what they hand to it.

Step i is a pure function of the weights, the optimizer state and (seed, i): the samples come from the keyed order,
their masks from the samples' numbers, dropout from the step's seed. So a run that was killed and goes on from a
checkpoint ends with the same bytes as one that never stopped, and there is no other state to keep.

A loss or gradient that is not finite stops the run with a reason before it can touch the weights; one that explodes
stops it before the next checkpoint.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from weft.errors import WeftError
from weft.model.flops import training_flops
from weft.model.kernel_report import kernel_lines
from weft.model.network import Network
from weft.objectives.objective import Batch, Objective, scaled_loss, scores
from weft.progress import say
from weft.tokens.order import Order, SampleIndex
from weft.train.checkpoints import CHECKPOINTS, restore_newest, save_checkpoint
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.schedules import Schedule
from weft.train.training_log import TrainingLog

SAMPLE_EVERY = 4  # validations
EXPLODED = 4.0  # times the lowest loss so far


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
    precision: torch.dtype = torch.float32  # of the products; the weights are fp32 always
    log_every: int = 10
    validate_every: int = 200
    checkpoint_every: int = 500
    keep: int = 2
    patience: int | None = None  # validations that are not the best before the run stops early


Retime = Callable[[int, float], TrainSpec]


@dataclass(frozen=True)
class Hooks:
    """What a caller may add to a run; none of it touches the weights."""

    sample: Callable[[], str] | None = None  # after some validations: what the model does by now
    # Before the first step of the schedule's decay, given the seconds a step took so far: how many steps there are to
    # be. It must write its answer down: a run that goes on after a kill is not asked again.
    retime: Retime | None = None
    figures: Callable[[dict[str, float]], dict[str, float]] | None = None  # more figures out of validation's losses
    measure: Callable[[], dict[str, float]] | None = (
        None  # validation in the caller's own way; a `validation_loss`, too
    )
    best_by: str | None = None  # the figure, the higher the better, that tells the best weights; if none, the loss does
    peak: float | None = None  # FLOP/s of the machine, to say how much of it is used


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
    hooks: Hooks | None = None,
) -> dict[str, Any]:
    """Train in place. `objectives[s]` makes batches of source `s`. Returns the last state: step, best, best_cost."""
    network.train()
    hooks = hooks or Hooks()
    optimizers = make_optimizers(network, spec.optimizer, spec.precision)
    checkpoints = folder / CHECKPOINTS
    state: dict[str, Any] = {"step": 0, "tokens": 0, "lowest": math.inf, "best": None, "best_cost": None, "waited": 0}
    if resume and (found := restore_newest(checkpoints, network, optimizers)):
        state = found
        say(f"Going on from step {state['step']:,}.")
    stopping = False

    with closing(TrainingLog(folder, state["step"], spec.steps, hooks.peak)) as record, _stop_signals() as stopped:
        for line in kernel_lines(network):
            record.note(line)
        step = state["step"]
        while step < spec.steps and not _is_over(state, spec):
            if hooks.retime is not None and step == spec.schedule.decay_begins and step > record.first:
                spec = hooks.retime(step, record.seconds / (step - record.first))
                record.steps = spec.steps
            began = time.perf_counter()
            loss, norm, batches = one_step(network, objectives, order, optimizers, spec, step)
            step += 1
            state["lowest"] = _checked(loss, state["lowest"], step)
            tokens = sum(len(batch.packed.tokens) for batch in batches)
            record.count(tokens, _flops(network, batches), time.perf_counter() - began)
            state |= {"step": step, "tokens": state["tokens"] + tokens}
            facts = {"step": step, "tokens": state["tokens"], "loss": loss, "grad_norm": norm}
            facts["lr"] = spec.optimizer.learning_rate * spec.schedule(step - 1)
            is_last = step == spec.steps
            if (validation or hooks.measure) and (is_last or step % spec.validate_every == 0):
                facts |= hooks.measure() if hooks.measure else validate(network, validation, spec.precision)
                facts |= hooks.figures(facts) if hooks.figures is not None else {}
                _remember(state, facts, hooks.best_by, step)
            validated = "validation_loss" in facts
            if hooks.sample is not None and validated and (is_last or step % (SAMPLE_EVERY * spec.validate_every) == 0):
                facts["sample"] = hooks.sample()
            if validated or is_last or step % spec.log_every == 0:
                record.write(facts)
            record.show(facts, always=validated or is_last)
            stopping = stopped() and not is_last
            is_best = validated and state["best"] == step
            if is_last or stopping or is_best or _is_over(state, spec) or step % spec.checkpoint_every == 0:
                kept = {key: value for key, value in state.items() if key != "step"}
                save_checkpoint(checkpoints, step, network, optimizers, keep=spec.keep, state=kept)
            if stopping:
                break
    if stopping:
        raise Interrupted(
            f"Stopped at step {step:,} of {spec.steps:,}; --resume, or weft run again, goes on from here."
        )
    if step < spec.steps:
        say(f"Stopping early at step {step:,}: {spec.patience} validations without a better one.")
    return state


def _checked(loss: float, lowest: float, step: int) -> float:
    """The lowest loss so far; an error if this one has exploded."""
    if loss > EXPLODED * lowest + 10:
        raise Diverged(
            f"At step {step:,} the loss is {loss:.1f}, after {lowest:.2f} at its lowest: training has exploded. The "
            "last checkpoint is whole; try a lower learning rate, a longer warm-up or stronger clipping."
        )
    return min(loss, lowest)


def _is_over(state: dict[str, Any], spec: TrainSpec) -> bool:
    return spec.patience is not None and state["waited"] >= spec.patience


def validate(network: Network, batches: Iterable[Batch], precision: torch.dtype = torch.float32) -> dict[str, float]:
    """Means over all batches: `validation_loss`, and for each head its loss and share of right answers."""
    was_training = network.training
    network.eval()
    device = _device(network)
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        with _precise(device, precision):
            found = scores(network, batch.to(device))
        for key, value in found.items():
            sums[key] = sums.get(key, 0.0) + value
        for kind, count in batch.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    network.train(was_training)
    means = {key: value / counts[key.partition("/")[2]] for key, value in sums.items()}
    facts = {"validation_loss": sum(value for key, value in means.items() if key.startswith("loss/"))}
    for kind in counts:
        facts[f"validation_{kind}_loss"] = means[f"loss/{kind}"]
        facts[f"validation_{kind}_accuracy"] = means[f"right/{kind}"]
    return facts


def one_step(
    network: Network,
    objectives: Sequence[Objective],
    order: Order,
    optimizers: list[torch.optim.Optimizer],
    spec: TrainSpec,
    step: int,
) -> tuple[float, float, list[Batch]]:
    torch.manual_seed(_mix(spec.seed, step))
    device = _device(network)
    batches = list(_batches(objectives, order.batch(step, spec.samples), spec))
    totals = {kind: sum(batch.counts[kind] for batch in batches) for kind in batches[0].counts}
    loss = 0.0
    for batch in batches:
        with _precise(device, spec.precision):
            part = scaled_loss(network, batch.to(device), totals, spec.smoothing)
        part.backward()
        loss += part.item()
    length = get_total_norm([weight.grad for weight in network.parameters() if weight.grad is not None])
    norm = float(length)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"At step {step + 1} the loss is {loss} and its gradient {norm}: training has diverged. This step was "
            "not taken, and the last checkpoint is from before it; try a lower learning rate, a longer warm-up or "
            "stronger clipping."
        )
    if 0 < spec.clip < norm:  # a pass over all gradients that is often not needed
        clip_grads_with_norm_(network.parameters(), spec.clip, length)
    set_rate(optimizers, spec.schedule(step), step)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss, norm, batches


def _batches(objectives: Sequence[Objective], places: list[SampleIndex], spec: TrainSpec) -> Iterator[Batch]:
    """The step's samples, source by source, in as many pieces as accumulation asks for."""
    size = -(-len(places) // spec.accumulation)
    for start in range(0, len(places), size):
        piece = places[start : start + size]
        for source, objective in enumerate(objectives):
            mine = [place for place in piece if place.source == source]
            if mine:
                yield objective.batch([place.sample for place in mine], [place.epoch for place in mine], spec.seed)


def _flops(network: Network, batches: list[Batch]) -> float:
    return sum(training_flops(network, batch.packed, batch.decoder, batch.scored) for batch in batches)


def _device(network: Network) -> torch.device:
    return next(network.parameters()).device


def _precise(device: torch.device, precision: torch.dtype) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == torch.bfloat16)


def _remember(state: dict[str, Any], facts: dict[str, Any], best_by: str | None, step: int) -> None:
    loss = facts["validation_loss"]
    if not math.isfinite(loss):
        raise Diverged(f"At step {step:,} the validation loss is {loss}: training has diverged.")
    # Of equal figures (few examples have few accuracies) the lower loss is the better one.
    cost = [loss if best_by is None else -facts[best_by], loss]
    if state["best_cost"] is None or cost < [state["best_cost"], state.get("best_loss", math.inf)]:
        state.update(best=step, best_cost=cost[0], best_loss=loss, waited=0)
    else:
        state["waited"] += 1


def _mix(seed: int, step: int) -> int:
    """A seed for each step; neighbours have nothing in common."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a stop after the step; a second Ctrl-C does not wait. Python lets only the main thread
    handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        say("Training outside the main thread: Ctrl-C is not handled here. --resume goes on from the last checkpoint.")
        yield lambda: False
        return
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
