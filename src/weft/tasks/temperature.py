"""Probabilities that agree with accuracy: the temperature of a classifier's head.

After training, all logits are divided by the number T that makes the labels of held-out examples most probable (Guo et
al. 2017). The output layer itself is divided, so every program that opens the model has the same probabilities. No
decision changes: the most probable label stays the most probable one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from weft.metrics.calibration import best_temperature, log_loss
from weft.model.network import Network
from weft.progress import say
from weft.tasks.example import Example, Input
from weft.tasks.scored_task import ScoredTask, answer_inputs

_LEAST_CALIBRATED = 100  # examples that a temperature is fitted to

Decisions = Callable[[np.ndarray, Sequence[Any]], tuple[np.ndarray, np.ndarray]]


def divide_by_temperature(
    task: ScoredTask,
    network: Network,
    examples: Sequence[Example],
    inputs: Sequence[Input],
    read: Callable[..., list[np.ndarray]],
    decisions: Decisions,
) -> dict[str, float]:
    """`read`: the logits of a batch. `decisions`: from logits and targets, the logits of alternatives and the right one
    of each. Returns what was done; nothing if there are too few examples.
    """
    known = [one for one in inputs if one.targets is not None]
    if len(known) < _LEAST_CALIBRATED:
        return {}
    chosen = [examples[one.example] for one in known]
    known = [replace(one, example=number) for number, one in enumerate(known)]
    rows = answer_inputs(task, network, chosen, known, read=read)
    logits, gold = decisions(np.stack(rows), [one.targets for one in known])
    temperature = best_temperature(logits, gold)
    with torch.no_grad():
        for parameter in network.head(task.head).out.parameters():
            parameter.div_(temperature)
    before, after = log_loss(logits, gold), log_loss(logits / temperature, gold)
    say(f"Probabilities calibrated on {len(known):,} {task.counted_as}: loss {before:.4f} → {after:.4f}.")
    return {"temperature": round(temperature, 4), "loss_before": before, "loss_after": after, "examples": len(known)}
