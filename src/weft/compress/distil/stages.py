"""The stages of a distillation as fine-tuning plans: the same settings, loop and checkpoints."""

import json
from pathlib import Path
from typing import Any

from weft.folders import read_json, to_json, write_file
from weft.recipe.distil import DistilSection
from weft.recipe.file import check_section
from weft.recipe.finetune import FinetunePlan, FinetuneSection
from weft.train.budget import read_budget

INTERMEDIATE, PREDICTION, ALONE = "intermediate", "prediction", "alone"
_PLAN_FILE = "plan.json"
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
