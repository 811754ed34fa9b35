"""What a run remembers from step to step, as `state.json` of a checkpoint keeps it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from weft.train.engine import Diverged

_EXPLODED = 4.0  # times the lowest loss so far


@dataclass
class TrainState:
    step: int = 0  # steps taken
    tokens: int = 0  # tokens read
    lowest: float = math.inf  # lowest training loss
    best: int | None = None  # step with the best validation
    best_cost: float | None = None  # its cost: the validation loss, or the negative of the metric that decides
    best_loss: float | None = None  # its validation loss
    waited: int = 0  # validations since the best
    stopped: str | None = None  # why the run ended early

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> "TrainState":
        """Of a checkpoint. Checkpoints of earlier versions lack some fields."""
        return cls(**{field.name: saved[field.name] for field in fields(cls) if field.name in saved})

    def to_save(self) -> dict[str, Any]:
        """Everything but the step, which the checkpoint adds."""
        return {name: value for name, value in asdict(self).items() if name != "step"}

    def count(self, loss: float, tokens: int) -> None:
        """One more step. Raises Diverged if the loss has exploded."""
        self.step += 1
        self.tokens += tokens
        if loss > _EXPLODED * self.lowest + 10:
            raise Diverged(
                f"At step {self.step:,} the loss is {loss:.1f}, after {self.lowest:.2f} at its lowest: training has "
                "exploded. The last checkpoint is intact. Try a lower learning rate, a longer warm-up or stronger "
                "clipping."
            )
        self.lowest = min(loss, self.lowest)

    def judge(self, facts: Mapping[str, Any], best_by: str | None) -> None:
        """Compare a validation with the best one. Raises Diverged if its loss is not finite."""
        loss = facts["validation_loss"]
        if not math.isfinite(loss):
            raise Diverged(f"At step {self.step:,} the validation loss is {loss}: training has diverged.")
        # With few examples metrics are often equal; then the lower loss is better.
        cost = [loss if best_by is None else -facts[best_by], loss]
        best_loss = math.inf if self.best_loss is None else self.best_loss
        if self.best_cost is None or cost < [self.best_cost, best_loss]:
            self.best, self.best_cost, self.best_loss, self.waited = self.step, cost[0], loss, 0
        else:
            self.waited += 1
