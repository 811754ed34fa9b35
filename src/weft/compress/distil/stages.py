"""The stages of a distillation as fine-tuning plans: the same settings, loop and checkpoints."""

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from weft.folders import read_json, to_json, write_file
from weft.objectives.distil_text import Distillation
from weft.progress import say
from weft.recipe.distil import DistilSection
from weft.recipe.file import check_section
from weft.recipe.finetune import FinetunePlan, FinetuneSection
from weft.tasks.learning.plan import STEPS_SHARE
from weft.train.budget import read_budget

INTERMEDIATE, PREDICTION, ALONE = "intermediate", "prediction", "alone"
_PLAN_FILE = "plan.json"
_TRIALS, _LEAST_SHARE = 5, 0.3  # batches that tell how long the teacher takes; of a step that the student takes
_SAME = (
    *("sequence_length", "batch", "accumulation", "weight_decay", "warmup", "clip", "precision", "threads", "seed"),
    *("log_every", "validate_every", "validation_examples", "checkpoint_every", "keep", "patience", "data"),
)


def finetune_section(section: DistilSection, task: str, **changes: Any) -> FinetuneSection:
    """The settings of `distil` as those of `finetune`."""
    values: dict[str, Any] = {name: getattr(section, name) for name in _SAME}
    values |= {"model": section.teacher, "task": task, "budget": section.budget, "optimizer": "adamw"}
    values |= {"learning_rate": section.learning_rate, "dropout": section.dropout, "baseline": section.yardsticks}
    return FinetuneSection(**{**values, **changes})


def share_of_budget(text: str, share: float) -> str:
    """A part of a budget, in the same unit."""
    budget = read_budget(text, "distil.budget")
    if budget.kind == "seconds":
        return f"{budget.amount * share:.3f}s"
    if budget.kind == "epochs":
        return f"{budget.amount * share:.6f} epochs"
    return f"{max(1, round(budget.amount * share))} {budget.kind}"


def with_steps_of_later_epochs(
    plan: FinetunePlan, budget: str, given: FinetuneSection, objective: Distillation, examples: int
) -> FinetunePlan:
    """With the steps that a time budget has room for if the teacher answers each of the examples only once. The plan's
    own steps are timed with the teacher.
    """
    wanted, epoch = read_budget(budget, "distil.budget"), examples / plan.batch
    steps = int(read_budget(plan.budget, "distil.budget").amount)
    if wanted.kind != "seconds" or steps <= epoch:
        return plan
    seconds = wanted.amount * STEPS_SHARE / steps
    rest = max(seconds - _teacher_seconds(objective, plan.batch), _LEAST_SHARE * seconds)
    more = int(epoch + (steps - epoch) * seconds / rest)
    say(f"Later epochs reuse the teacher's answers: the budget is enough for {more:,} steps.")
    intervals = {
        key: math.ceil(getattr(plan, key) * more / steps)
        for key in ("validate_every", "checkpoint_every")
        if getattr(given, key) is None
    }
    return plan.model_copy(update={"budget": f"{more} steps", **intervals})


def _teacher_seconds(objective: Distillation, samples: int) -> float:
    """For a batch."""
    times = []
    for trial in range(_TRIALS + 1):
        numbers = [(trial * samples + place) % len(objective) for place in range(samples)]
        batch = objective.batch(numbers, [0] * samples, 0)
        began = time.perf_counter()
        objective.teacher.compute(batch)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first one warms up


class StagePlans:
    """The plans of a run's stages, as plan.json keeps them for resuming."""

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self.file = folder / _PLAN_FILE
        if not resume:
            self.file.unlink(missing_ok=True)
        self.known = self._read()

    def _read(self) -> dict[str, Any]:
        return read_json(self.file) if self.file.is_file() else {}

    def find(self, stage: str) -> FinetunePlan | None:
        self.known = self._read()  # another process may have written it
        return check_section(FinetunePlan, self.known[stage], str(self.file)) if stage in self.known else None

    def add(self, stage: str, plan: FinetunePlan) -> FinetunePlan:
        self.note(stage, json.loads(plan.model_dump_json(exclude_none=True)))
        return plan

    def note(self, key: str, value: Any) -> None:
        self.known[key] = value
        write_file(self.file, to_json(self.known))
