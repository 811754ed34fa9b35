"""What validation examples decide after training: the temperature of the logits, and the threshold of each label."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from weft.metrics.calibration import best_temperature, log_loss
from weft.metrics.classes import multilabel_figures
from weft.metrics.thresholds import PLAIN_THRESHOLD, label_thresholds
from weft.model.network import Network
from weft.progress import say
from weft.tasks.example import Example, Input
from weft.tasks.scored_task import ScoredTask, answer_inputs

LEAST_CALIBRATED = 100  # examples that a temperature is fitted to
_TITLES = {"f1_micro": "micro F1", "f1": "macro F1"}


def divide_by_temperature(
    task: ScoredTask,
    network: Network,
    examples: Sequence[Example],
    inputs: Sequence[Input],
    read: Callable[..., list[np.ndarray]],
    decisions: Callable[[np.ndarray, Sequence[Any]], tuple[np.ndarray, np.ndarray]],
) -> dict[str, float]:
    """Divides the logits by the temperature that fits best (Guo et al. 2017), in the output layer itself: so every
    program that opens the model has the calibrated probabilities. `read`: the logits of a batch. `decisions`: from
    logits and targets, the logits of alternatives and the right one of each. Nothing is done with too few examples.
    """
    known = [one for one in inputs if one.targets is not None]
    if len(known) < LEAST_CALIBRATED:
        return {}
    chosen = [examples[one.example] for one in known]
    known = [replace(one, example=number) for number, one in enumerate(known)]
    rows = answer_inputs(task, network, chosen, known, read=read)
    logits, gold = decisions(np.stack(rows), [one.targets for one in known])
    out = network.head(task.head).out
    if out is None or not np.isfinite(logits).all():
        return {}
    temperature = best_temperature(logits, gold)
    with torch.no_grad():
        for parameter in out.parameters():
            parameter.div_(temperature)
    before, after = log_loss(logits, gold), log_loss(logits / temperature, gold)
    say(f"Probabilities calibrated on {len(known):,} {task.counted_as}: loss {before:.4f} → {after:.4f}.")
    return {"temperature": round(temperature, 4), "loss_before": before, "loss_after": after, "examples": len(known)}


def choose_thresholds(probabilities_NL: np.ndarray, gold_NL: np.ndarray, counted: str) -> float | tuple[float, ...]:
    """One for each label; a number if it suits all."""
    thresholds = label_thresholds(probabilities_NL, gold_NL)
    if (thresholds == PLAIN_THRESHOLD).all():
        return PLAIN_THRESHOLD
    before, after = (multilabel_figures(gold_NL, probabilities_NL > one) for one in (PLAIN_THRESHOLD, thresholds))
    gains = (f"{title} {before[key]:.3f} → {after[key]:.3f}" for key, title in _TITLES.items())
    say(f"A threshold for each label, chosen on {counted}: {', '.join(gains)}.")
    return tuple(thresholds.tolist())


def read_threshold(value: Any, labels: Sequence[str]) -> float | tuple[float, ...]:
    """One for all labels, or a list of one for each. Raises TypeError."""
    each = value if isinstance(value, list) else [value]
    if not all(isinstance(one, float) and 0 < one < 1 for one in each):
        raise TypeError("a threshold is not a probability")
    if isinstance(value, list) and len(value) != len(labels):
        raise TypeError("the thresholds are not as many as the labels")
    return tuple(value) if isinstance(value, list) else value


def is_above(probabilities: np.ndarray, threshold: float | tuple[float, ...]) -> np.ndarray:
    """bool (…, labels): which labels are predicted. The last ones may have no threshold: the model does not know them,
    and their probability is 0.
    """
    if isinstance(threshold, tuple):
        more = probabilities.shape[-1] - len(threshold)
        return probabilities > np.pad(threshold, (0, more), constant_values=PLAIN_THRESHOLD)
    return probabilities > threshold
