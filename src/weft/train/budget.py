"""How long to train: `20m`, `2000 steps`, `50M tokens`, `3 epochs`."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from weft.errors import RecipeError

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
# A time needs a lower-case unit: 50M alone is not fifty minutes.
_PATTERN = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(?:([smhd])|([kmbKMB]?)\s*(steps?|tokens?|epochs?))\s*")
_MOST_STEPS = 10**9


@dataclass(frozen=True)
class Budget:
    amount: float
    kind: Literal["seconds", "steps", "tokens", "epochs"]


def read_budget(text: str, key: str = "pretrain.budget") -> Budget:
    found = _PATTERN.fullmatch(text)
    if not found or float(found[1]) == 0:
        raise RecipeError(f"{key} cannot be {text!r}. Examples: 20m, 2h, 2000 steps, 50M tokens, 3 epochs.")
    number, time, factor, noun = found.groups()
    if time:
        return Budget(float(number) * _SECONDS_PER_UNIT[time.lower()], "seconds")
    kinds: dict[str, Literal["steps", "tokens", "epochs"]] = {"s": "steps", "t": "tokens", "e": "epochs"}
    return Budget(float(number) * _MULTIPLES[factor.lower()], kinds[noun[0].lower()])


def steps_of(
    budget: Budget, *, batch_tokens: int, samples: int, epoch_samples: int, key: str = "pretrain.budget"
) -> int:
    """The number of steps of `samples` samples, about `batch_tokens` tokens. Not for a budget in time."""
    per_step = {"steps": 1.0, "tokens": batch_tokens, "epochs": samples / epoch_samples}[budget.kind]
    steps = math.ceil(budget.amount / per_step - 1e-9)
    if steps > _MOST_STEPS:
        raise RecipeError(f"{key} is {steps:,} steps; the limit is {_MOST_STEPS:,}.")
    return max(steps, 1)
