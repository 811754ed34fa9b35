"""The one training loop: pre-training, fine-tuning and distillation differ in what they hand to it.

Step i is a pure function of the weights, the optimizer state and (seed, i): the samples come from the keyed order,
their masks from the samples' numbers, dropout from the step's seed. So a run that was killed and resumed from a
checkpoint ends with the same bytes as one that never stopped, and there is no other state to keep.

A loss or gradient that is not finite stops the run before it can touch the weights; a loss that explodes stops it
before the next checkpoint.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.errors import RecipeError, WeftError
from weft.model.flops import training_flops
from weft.model.kernel_report import kernel_lines
from weft.model.network import Network
from weft.objectives.objective import Batch, Objective
from weft.tokens.order import Order
from weft.train.batches import StepBatches, StepPiece
from weft.train.checkpoints import CHECKPOINTS
from weft.train.engine import Diverged, Engine
from weft.train.pending_checkpoint import CheckpointWriter
from weft.train.prefetch import Prefetcher
from weft.train.processes import Processes
from weft.train.repeatable import repeatable_lines
from weft.train.signals import stop_signals
from weft.train.spec import TrainSpec
from weft.train.state import TrainState
from weft.train.step import Step
from weft.train.training_log import SilentLog, TrainingLog
from weft.train.validation import validate

_SAMPLE_EVERY = 4  # validations

Retime = Callable[[int, float], TrainSpec]
StopRule = Callable[[dict[str, Any], TrainState], str | None]


@dataclass(frozen=True)
class Hooks:
    """What a caller may add to a run. No hook may change the weights."""

    sample: Callable[[], str] | None = None  # after some validations: a text that shows what the model can do
    # Before the first step of the schedule's decay, given the mean seconds of a step: the settings with a corrected
    # number of steps. The hook must save its answer, because a resumed run does not ask again.
    retime: Retime | None = None
    figures: Callable[[dict[str, float]], dict[str, float]] | None = None  # more figures, from the validation losses
    # Replaces validation on batches. Its facts must include `validation_loss`; those of the first process count.
    measure: Callable[[], dict[str, float]] | None = None
    best_by: str | None = None  # the figure (higher is better) that decides on the best weights. None: the loss
    # After each validation, given the facts and the state: a reason to stop the run early, or None. The reason is
    # saved, so a resumed run stays stopped.
    stop_rules: Sequence[StopRule] = ()
    peak: float | None = None  # FLOP/s of the machine, to report the share that is used


class Interrupted(WeftError):
    """The user asked to stop; everything is saved."""

    exit_code = 130


def patience_rule(patience: int) -> StopRule:
    """Stop after so many validations without a new best."""

    def rule(facts: dict[str, Any], state: TrainState) -> str | None:
        return f"{patience} validations without a better one" if state.waited >= patience else None

    return rule


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
    processes: Processes | None = None,
) -> TrainState:
    """Train in place. `objectives[s]` makes the batches of source `s`. Returns the state after the last step.

    Raises Interrupted after Ctrl-C or SIGTERM, once a checkpoint is saved, and Diverged.
    """
    network.train()
    processes = processes or Processes()
    if not processes.is_exact:  # each process computes its share of a step at once
        spec = replace(spec, pieces=processes.data.world)
    if spec.samples < spec.pieces:
        parts = f"its {spec.pieces} pieces" if processes.is_exact else f"the {spec.pieces} processes"
        raise RecipeError(f"A step has {spec.samples} samples, fewer than {parts}. Make the batch larger.")
    if spec.pieces < (world := processes.data.world):
        pieces = "1 piece" if spec.pieces == 1 else f"{spec.pieces} pieces"
        raise RecipeError(
            f"A step has {pieces}, fewer than the {world} processes. Start fewer, or begin a new run with more pieces."
        )
    loop = _Loop(network, objectives, spec, folder, validation, hooks or Hooks(), processes)
    if resume:
        loop.restore()
    made, device = StepBatches(objectives, order, spec, processes), loop.engine.step.device

    def make(step: int) -> list[StepPiece]:
        pieces = made(step)
        return [StepPiece(number, [one.to(device, non_blocking=True) for one in batches]) for number, batches in pieces]

    loop.checkpoints.remove_left()
    with closing(loop.open_log()), closing(loop.checkpoints), stop_signals() as asked:
        ahead = Prefetcher(make, loop.state.step) if prefetches(device.type) else nullcontext(make)
        with ahead as pieces_of:
            try:
                interrupted = loop.run(pieces_of, asked)
            except Diverged as error:  # in all processes
                loop.log.note(str(error))
                loop.checkpoints.finish()
                raise
    loop.engine.finish()
    step = loop.state.step
    if interrupted:
        raise Interrupted(f"Stopped at step {step:,} of {loop.spec.steps:,}. --resume, or weft run again, continues.")
    if loop.state.stopped is not None:
        processes.say(f"Stopping early at step {step:,}: {loop.state.stopped}.")
    return loop.state


def prefetches(device: str) -> bool:
    """On a GPU, which leaves the CPU free to make batches. On a CPU the thread would compete with the step itself."""
    return device != "cpu"


def _engine(step: Step, spec: TrainSpec, processes: Processes) -> Engine:
    options: dict[str, Any] = {"clip": spec.clip, "seed": spec.seed, "pieces": spec.pieces, "processes": processes}
    if processes.zero is None:
        return Engine(step, spec.optimizer, **options)
    from weft.train.deepspeed_engine import DeepSpeedEngine  # an extra

    return DeepSpeedEngine(step, spec.optimizer, **options)


class _Loop:
    """A run on its way: what one step hands to the next."""

    def __init__(
        self,
        network: Network,
        objectives: Sequence[Objective],
        spec: TrainSpec,
        folder: Path,
        validation: Sequence[Batch],
        hooks: Hooks,
        processes: Processes,
    ) -> None:
        self.network, self.objective, self.spec, self.folder = network, objectives[0], spec, folder
        self.validation, self.hooks, self.processes = validation, hooks, processes
        self.engine = _engine(Step(network, self.objective, spec.precision), spec, processes)
        self.rules = [*hooks.stop_rules, *([] if spec.patience is None else [patience_rule(spec.patience)])]
        self.state = TrainState()
        self.log: TrainingLog = SilentLog(folder, 0, spec.steps)
        self.checkpoints = CheckpointWriter(folder / CHECKPOINTS, processes)

    def restore(self) -> None:
        saved = self.engine.restore_newest(self.folder / CHECKPOINTS)
        if saved is None:
            self.processes.say("No checkpoint yet: training starts at step 0.")
            return
        self.state = TrainState.read(saved)
        if "stopped" not in saved:  # a checkpoint of an earlier version, which kept `waited` alone
            self.state.stopped = self._reason_to_stop({})
        self.processes.say(f"Resuming from step {self.state.step:,}.")

    def open_log(self) -> TrainingLog:
        kind = TrainingLog if self.processes.is_first else SilentLog
        self.log = kind(self.folder, self.state.step, self.spec.steps, self.hooks.peak)
        device = self.engine.step.device
        for line in [*kernel_lines(self.network, self.spec.precision), *repeatable_lines(device)]:
            self.log.note(line)
        return self.log

    def run(self, pieces_of: Callable[[int], list[StepPiece]], asked: Callable[[], bool]) -> bool:
        """Take steps until the run is over. Returns whether it was interrupted."""
        while self.state.step < self.spec.steps and self.state.stopped is None:
            self._retime()
            facts = self._take_step(pieces_of)
            is_last = self.state.step == self.spec.steps
            validated = self._validate(facts, is_last)
            if validated or is_last or self.state.step % self.spec.log_every == 0:
                self.log.write(facts)
            self.log.show(facts, always=validated or is_last)
            told = self.processes.gather([asked(), self.checkpoints.is_written])
            interrupted = any(stop for stop, _ in told) and not is_last
            if all(written for _, written in told):
                self.checkpoints.finish()
            ends = is_last or interrupted or self.state.stopped is not None
            is_best = validated and self.state.best == self.state.step
            if ends or is_best or self.state.step % self.spec.checkpoint_every == 0:
                self._save(at_once=ends)
            if interrupted:
                return True
        return False

    def _save(self, *, at_once: bool) -> None:
        self.checkpoints.finish()  # the one before, which may still be on its way
        files, state = self.engine.checkpoint_files(), self.state.to_save()
        self.checkpoints.save(self.state.step, files, keep=self.spec.keep, state=state, at_once=at_once)

    def _retime(self) -> None:
        step, first = self.state.step, self.log.first
        if self.hooks.retime is not None and step == self.spec.schedule.decay_begins and step > first:
            self.spec = self.hooks.retime(step, self.log.seconds / (step - first))
            self.log.steps = self.spec.steps

    def _take_step(self, pieces_of: Callable[[int], list[StepPiece]]) -> dict[str, Any]:
        began, step = time.perf_counter(), self.state.step
        pieces = pieces_of(step)
        rate = self.spec.schedule(step)
        loss, norm = self.engine.take_step(pieces, step, rate)
        batches = [batch for piece in pieces for batch in piece.batches]
        tokens = sum(len(batch.packed.tokens) for batch in batches)
        flops = sum(training_flops(self.network, batch.packed, batch.decoder, batch.scored) for batch in batches)
        own = tokens if self.processes.tensor.is_first else 0  # its peers compute the same samples
        whole = self.processes.add_up({"tokens": own, "flops": flops})
        self.state.count(loss, int(whole["tokens"]))
        self.log.count(int(whole["tokens"]), whole["flops"], time.perf_counter() - began)
        facts = {"step": self.state.step, "tokens": self.state.tokens, "loss": loss, "grad_norm": norm}
        return {**facts, "lr": self.spec.optimizer.learning_rate * rate}

    def _validate(self, facts: dict[str, Any], is_last: bool) -> bool:
        """Add the validation figures to the facts, if it is time. Returns whether it was."""
        step, every = self.state.step, self.spec.validate_every
        if not (self.validation or self.hooks.measure) or not (is_last or step % every == 0):
            return False
        with self.engine.whole_weights():
            self._add_validation(facts, is_last)
        return True

    def _add_validation(self, facts: dict[str, Any], is_last: bool) -> None:
        step, every = self.state.step, self.spec.validate_every
        found = self.hooks.measure() if self.hooks.measure else self._measure()
        facts |= self.processes.broadcast(found)  # on another processor the last digits may differ
        facts |= self.hooks.figures(facts) if self.hooks.figures is not None else {}
        self.state.judge(facts, self.hooks.best_by)
        if step < self.spec.steps:
            self.state.stopped = self._reason_to_stop(facts)
        if self.hooks.sample is not None and (is_last or step % (_SAMPLE_EVERY * every) == 0):
            facts["sample"] = self.hooks.sample()

    def _measure(self) -> dict[str, float]:
        scores, precision = self.objective.scores, self.spec.precision
        return validate(self.network, self.validation, precision, scores=scores, processes=self.processes)

    def _reason_to_stop(self, facts: dict[str, Any]) -> str | None:
        """The first process decides: a rule may depend on a clock."""
        reasons = [reason for rule in self.rules if (reason := rule(facts, self.state)) is not None]
        return self.processes.broadcast(reasons[0] if reasons else None)
