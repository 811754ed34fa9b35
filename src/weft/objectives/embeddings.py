"""Targets of text vectors: which texts belong together, or how alike two texts are.

    ContrastiveAnswers   −log softmax(c / τ)[own], c: cosines of a text with all second texts of the batch (van den Oord
                         et al. 2018; Henderson et al. 2017), and the same from the second texts' side
    RankedAnswers        log(1 + Σ exp((c_j − c_i) / τ)) over all pairs i, j of which i has the higher score (CoSENT,
                         Su 2022)

A batch holds the texts of each example side by side: first, second and, if it has one, negative.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.heads import PoolKind, pooled
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.distil_losses import soft_kl

TEMPERATURE = 0.05  # τ


def unit_rows(hidden_TW: Tensor, batch: Packed, pooling: PoolKind) -> Tensor:
    """A vector of length 1 per sequence, in fp32."""
    return F.normalize(pooled(hidden_TW, batch, pooling).float(), dim=-1)


@dataclass(frozen=True)
class ContrastiveAnswers:
    pooling: PoolKind
    first: Tensor  # (N,) the sequence of each example's first text
    others: Tensor  # (N + M,) those of the N second texts, then of the M negatives
    copies: Tensor  # (N, N + M) bool: texts of other examples that equal this example's first or second text

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """(N, N + M): cosines of each first text with all others, divided by τ."""
        rows = unit_rows(hidden, reader, self.pooling)
        cosines = rows[self.first] @ rows[self.others].T
        return (cosines / TEMPERATURE).masked_fill(self.copies, -torch.inf)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        count = len(logits)
        own = torch.arange(count, device=logits.device)
        back = logits[:, :count].T  # from the second texts to all first ones
        return (F.cross_entropy(logits, own, reduction="sum") + F.cross_entropy(back, own, reduction="sum")) / 2

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Between both models' ideas of which texts of the batch belong together."""
        return soft_kl(logits, teacher, temperature)

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        logits = self.logits(network, hidden, reader)
        return (logits.argmax(-1) == torch.arange(len(logits), device=logits.device)).sum()


@dataclass(frozen=True)
class RankedAnswers:
    pooling: PoolKind
    values: Tensor  # (N,) scores; only their order matters

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """(N, 1): the cosines."""
        first, second = unit_rows(hidden, reader, self.pooling).unflatten(0, (-1, 2)).unbind(1)
        return (first * second).sum(-1, keepdim=True)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        """N times the loss of the batch, since the caller divides by N."""
        cosines = self.logits(network, hidden, reader)[:, 0] / TEMPERATURE
        gaps = cosines[None, :] - cosines[:, None]  # row i, column j: c_j − c_i
        wrong = gaps[self.values[:, None] > self.values[None, :]]
        return len(cosines) * torch.cat([wrong.new_zeros(1), wrong]).logsumexp(0)

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return F.mse_loss(logits, teacher, reduction="sum") / TEMPERATURE**2

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """Always 0: a cosine is not right or wrong."""
        return self.values.new_zeros(())
