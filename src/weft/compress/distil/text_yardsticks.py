"""Yardsticks of a distilled language model: its loss on held-out text beside that of its teacher and of itself without
a teacher, with intervals. Batches of text are what is drawn anew in the bootstrap.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.compress.distil.yardsticks import TITLES
from weft.metrics.bootstrap import sum_intervals
from weft.metrics.difference import paired_difference
from weft.metrics.judged import Judged
from weft.model.network import Network, count_parameters
from weft.progress import say
from weft.recipe.pretrain import PretrainPlan
from weft.train.pretrain_inputs import PretrainInputs
from weft.train.validation import some_batches


@dataclass(frozen=True)
class TextContestant:
    network: Network


def compare_texts(
    inputs: PretrainInputs, plan: PretrainPlan, student: TextContestant, others: dict[str, TextContestant]
) -> dict[str, Any]:
    """`yardsticks` by name, and the student's own interval. Empty if there is no held-out text."""
    split = "test" if inputs.data.splits["test"] else "validation"
    objectives = inputs.objectives(split, plan)  # type: ignore[arg-type]
    if not objectives:
        return {}
    batches = some_batches(objectives, 4 * plan.validation_tokens, plan.sequence_length)
    head = inputs.kind.language_head

    def judge(one: TextContestant) -> Judged:
        network = one.network.eval()
        device = next(network.parameters()).device
        sums = []
        with torch.no_grad():
            for batch in batches:
                found = objectives[0].scores(network, batch.to(device))
                sums.append([float(found[f"loss/{head}"]), batch.counts[head]])
        values = np.asarray(sums)
        return Judged(
            {key: float(value) for key, value in _figures(values.sum(0)).items()},
            sum_intervals(values, _figures),
            np.zeros(0),
            np.zeros(0),
        )

    own, found = judge(student), {}
    for name, other in others.items():
        judged = judge(other)
        gap = paired_difference("loss", own, judged)
        found[name] = {
            "name": TITLES[name],
            "figures": judged.figures,
            "intervals": _ends(judged),
            "parameters": count_parameters(other.network),
            **({} if gap is None else {"difference": gap.facts()}),
        }
        if gap is not None:
            say(f"Against {TITLES[name]} (loss {judged.figures['loss']:.3f}): {gap.verdict}.")
    return {"held_out": {"split": split, "figures": own.figures, "intervals": _ends(own)}, "yardsticks": found}


def _figures(sums: np.ndarray) -> dict[str, np.ndarray]:
    loss = sums[..., 0] / np.maximum(sums[..., 1], 1)
    return {"loss": loss, "perplexity": np.exp(np.minimum(loss, 700.0))}


def _ends(judged: Judged) -> dict[str, list[float]]:
    return {name: [gap.low, gap.high] for name, gap in judged.intervals.items()}
