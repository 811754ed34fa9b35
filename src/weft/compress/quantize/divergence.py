"""How far a quantized model's predictions are from those of the fp32 model, on the same batches.

heads with classes, language models   KL divergence per prediction, in nats. If the fp32 model's probabilities are
                                      right, 0.01 nats is 1 % of perplexity
numbers (regression)                  squared difference, divided by the variance of the fp32 model's numbers
vectors (no head)                     1 − cosine of the mean hidden states
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.errors import WeftError
from weft.model.heads import mean_of_each
from weft.model.network import Network
from weft.objectives.answers import RegressionAnswers
from weft.objectives.distil_losses import cosine_distance, soft_kl
from weft.objectives.objective import Batch

_VECTORS = "vectors"


def predictions(network: Network, batch: Batch) -> dict[str, Tensor]:
    """Logits by head; without a head, a vector per sequence."""
    hidden, reader = network(batch.packed, batch.decoder), batch.decoder or batch.packed
    if not batch.counts:
        return {_VECTORS: mean_of_each(hidden, reader)}
    return {
        kind: batch.answers[kind].logits(network, hidden, reader)
        if kind in batch.answers
        else network.head(kind)(hidden, reader, batch.rows).float()
        for kind in batch.counts
    }


def distance(batch: Batch, kind: str, ours: Tensor, teacher: Tensor) -> Tensor:
    """The sum over the batch's predictions of one head."""
    if kind == _VECTORS:
        return cosine_distance(ours, teacher)
    return batch.answers[kind].distance(ours, teacher, 1.0) if kind in batch.answers else soft_kl(ours, teacher)


class Reference:
    """The fp32 model's predictions on some batches, to compare others with. Raises WeftError if they are NaN."""

    def __init__(self, network: Network, batches: Sequence[Batch]) -> None:
        self.batches = batches
        with torch.inference_mode():
            self.teacher = [predictions(network.eval(), batch) for batch in batches]
        # −∞ is fine: it pads.
        if any((found.isnan() | (found == math.inf)).any() for teacher in self.teacher for found in teacher.values()):
            raise WeftError("The model's predictions are NaN: its weights have diverged, so it cannot be quantized.")

    @torch.inference_mode()
    def divergence(self, network: Network) -> float:
        """Infinite if a prediction is NaN."""
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        for batch, teacher in zip(self.batches, self.teacher, strict=True):
            for kind, ours in predictions(network.eval(), batch).items():
                sums[kind] = sums.get(kind, 0.0) + float(distance(batch, kind, ours, teacher[kind]))
                counts[kind] = counts.get(kind, 0) + batch.counts.get(kind, len(batch.packed.lengths))
        found = sum(total / max(counts[kind], 1) / self._unit(kind) for kind, total in sums.items())
        return max(found, 0.0) if math.isfinite(found) else math.inf  # rounding errors make zeros negative

    def in_words(self, divergence: float) -> str:
        kinds = list(self.teacher[0])
        if kinds == [_VECTORS]:
            return f"vectors turn by {divergence:.2g} (1 − cosine)"
        if all(map(self._is_number, kinds)):
            return f"predicted numbers differ by {divergence:.2g} of their variance"
        return f"predictions differ by {divergence:.2g} nats"

    def _is_number(self, kind: str) -> bool:
        return isinstance(self.batches[0].answers.get(kind), RegressionAnswers)

    def _unit(self, kind: str) -> float:
        if not self._is_number(kind):
            return 1.0
        numbers = torch.cat([teacher[kind] for teacher in self.teacher])
        return max(float(numbers.var(correction=0)), 1e-12)
