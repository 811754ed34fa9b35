"""Training after the cut: the pruned network learns the whole one's predictions for a few minutes.

The first of these minutes go to the choice of a shape, if there are several: each candidate is trained for a short
while. What is lost by a cut says little about what training brings back. Of a MiniLM tuned on SST-2, six layers with
288 neurons lose less than three whole layers at the same speed, and recover less.
"""

import copy
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from weft.compress.prune.calibration import PruningData
from weft.inference.precision import teaching
from weft.model.network import Network
from weft.objectives.distil_tasks import PredictionDistillation
from weft.objectives.distil_teacher import Teacher, Wanted
from weft.objectives.distil_text import TEXT_METHODS, Distillation, TextDistillation, wanted_for_text
from weft.objectives.objective import Objective
from weft.progress import say
from weft.tokens.order import Order
from weft.train.loop import train
from weft.train.optimizers import OptimizerSpec
from weft.train.plan.trial import Precision, faster_precision, step_times
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.text_evaluation import language_head

# As in fine-tuning, narrower models take larger steps. Higher rates undo the compensation: a MiniLM tuned on SST-2,
# with 288 of 1,536 neurons, had a held-out loss of 0.221 after a minute with 1e-4, 0.216 with 3e-5, 0.232 with 1e-5.
_RATE, _RATE_WIDTH, _RATE_POWER = 3e-5, 768, 1.5
_HIGHEST_RATE = 5e-4
_TASK_SAMPLES, _STEP_TOKENS = 32, 2048
_TRIAL_SECONDS, _TRIAL_SHARE = 1.5, 0.02  # of steps that tell how long one takes: at most, and of the minutes
_FEWEST_STEPS = 10
_TRIALS_SHARE = 0.3  # of the minutes, for all candidates together
_STEPS_SHARE = 0.95  # of the minutes; the rest is for the last checkpoint and the loss


@dataclass(frozen=True)
class Recovered:
    network: Network
    steps: int
    seconds: float
    loss: float


class Recovery:
    """Minutes of training, shared by trials of candidates and the network that is chosen."""

    def __init__(self, whole: Network, calibration: PruningData, minutes: float, scratch: Path) -> None:
        self.whole, self.calibration, self.scratch = whole, calibration, scratch
        self.minutes = minutes  # that are left
        self.trials = 0

    def minutes_of_trial(self, candidates: int) -> float:
        return _TRIALS_SHARE * self.minutes / candidates

    def trial(self, pruned: Network, minutes: float) -> float:
        """The loss after so many minutes."""
        self.trials += 1
        trained = self._train(pruned, minutes, f"trial-{self.trials}")
        return min(trained.loss, self.calibration.loss(pruned))

    def finish(self, pruned: Network, loss: float) -> Recovered:
        """Trains for the minutes that are left. `loss`: of `pruned`, which is kept if training does not lower it."""
        found = self._train(pruned, self.minutes, "recovery", announced=True)
        if found.loss >= loss:
            say(f"Training did not lower the loss ({loss:.4f} → {found.loss:.4f}): the network before it is kept.")
            return replace(found, network=pruned, loss=loss)
        return found

    def _train(self, pruned: Network, minutes: float, name: str, *, announced: bool = False) -> Recovered:
        began, calibration = time.monotonic(), self.calibration
        student = copy.deepcopy(calibration.with_task(pruned))
        teacher = copy.deepcopy(calibration.with_task(self.whole))
        with teaching(teacher, None):
            goal = _objective(teacher, calibration.objective())
            order = Order((len(goal),), (1.0,), 0)
            spec = _spec(student, goal, order, minutes * 60 - (time.monotonic() - began))
            if announced:
                what = f"{spec.steps:,} steps of {spec.samples} samples, taught by the whole model"
                say(f"Recovering for {minutes:.2g} min: {what}.")
            train(student, [goal], order, spec, self.scratch / name)
        state = {name: value for name, value in student.state_dict().items() if name in pruned.state_dict()}
        trained = copy.deepcopy(pruned)
        trained.load_state_dict(state)
        loss, seconds = calibration.loss(trained.eval()), time.monotonic() - began
        self.minutes = max(0.0, self.minutes - seconds / 60)
        return Recovered(trained, spec.steps, seconds, loss)


def _objective(teacher: Network, inner: Objective) -> Distillation:
    """KL on the scored tokens of a language head, or on the logits of the task's heads."""
    batch = inner.batch([0], [0], 0)
    if batch.targets is None:
        return PredictionDistillation(inner, Teacher(teacher, Wanted(answers=True)))
    head, losses = language_head(teacher), TEXT_METHODS["kl"]
    assert head is not None
    return TextDistillation(inner, Teacher(teacher, wanted_for_text(losses, head, 0)), head, losses)


def _spec(network: Network, goal: Distillation, order: Order, seconds: float) -> TrainSpec:
    tokens = len(goal.batch([0], [0], 0).packed.tokens)
    is_task = isinstance(goal, PredictionDistillation)
    samples = min(len(goal), _TASK_SAMPLES if is_task else max(1, _STEP_TOKENS // tokens))
    rate = min(_RATE * (_RATE_WIDTH / network.width) ** _RATE_POWER, _HIGHEST_RATE)
    optimizer = OptimizerSpec("adamw", rate, 0.01, (0.9, 0.999))
    times: dict[Precision, list[float]] = {}

    def trial(precision: Precision) -> list[float]:
        spec = _with(precision, samples, optimizer, 1)
        longest = min(_TRIAL_SECONDS, _TRIAL_SHARE * seconds)
        times[precision] = step_times(copy.deepcopy(network), [goal], order, spec, longest)
        return times[precision]

    began = time.monotonic()
    precision = faster_precision(trial, str(next(network.parameters()).device))
    spent = times.get(precision) or trial(precision)
    left = seconds * _STEPS_SHARE - (time.monotonic() - began)
    return _with(precision, samples, optimizer, max(_FEWEST_STEPS, int(left / (sum(spent) / len(spent)))))


def _with(precision: str, samples: int, optimizer: OptimizerSpec, steps: int) -> TrainSpec:
    schedule = Schedule(steps, "linear", warmup=min(steps, max(1, steps // 20)))
    return TrainSpec(
        steps, samples, schedule, optimizer, precision=getattr(torch, precision), checkpoint_every=steps, keep=1
    )
