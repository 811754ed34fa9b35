"""Targets of heads other than the language head, and their losses.

    ClassAnswers        one of L labels per row              −log softmax(z)[y], weighted by class if wished
    MultiLabelAnswers   any number of L labels per row       −Σ log σ(±z) / L
    RegressionAnswers   a number per row                     (z − y)²
    SpanAnswers         first and last token of a span       −(log softmax(z_first)[b] + log softmax(z_last)[e]) / 2,
                                                             softmax over the tokens of each sequence

A row is a sequence if the head pools, otherwise one scored token. The windows of a long text are sequences that share
a row: its logits are their mean. Losses are sums over rows; the caller divides by the
number of rows in the whole step. A distance from a teacher is the same loss with its logits for targets: the KL
divergence of the same distributions, or the squared difference.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.distil_losses import binary_kl, soft_kl


class Answers(Protocol):
    """A dataclass, so that `Batch.to` finds its tensors."""

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor: ...

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor: ...

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """From a teacher's logits, summed over the rows."""

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """The number of rows that are predicted correctly."""


@dataclass(frozen=True)
class ClassAnswers:
    head: str
    values: Tensor  # (N,)
    rows: Tensor | None = None  # (N,) the scored tokens, if the head does not pool
    weights: Tensor | None = None  # (L,) class weights
    among: tuple[int, int] | None = None  # only this range of the head's outputs; `values` count from its start
    windows: tuple[int, ...] | None = None  # sequences that share a row, one after the other; None: one each

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        found = mean_of_windows(network.head(self.head)(hidden, reader, self.rows).float(), self.windows)
        return found if self.among is None else found[:, self.among[0] : self.among[1]]

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        # The sum: torch's weighted mean divides by the weights of this piece alone, not of the whole step.
        return F.cross_entropy(logits, self.values, self.weights, reduction="sum", label_smoothing=smoothing)

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return soft_kl(logits, teacher, temperature)

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return (self.logits(network, hidden, reader).argmax(-1) == self.values).sum()


@dataclass(frozen=True)
class MultiLabelAnswers:
    head: str
    values: Tensor  # (N, L) 0 or 1
    weights: Tensor | None = None  # (L,) weights of positive labels
    windows: tuple[int, ...] | None = None

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return mean_of_windows(network.head(self.head)(hidden, reader).float(), self.windows)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        wanted = self.values * (1 - smoothing) + smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, wanted, pos_weight=self.weights, reduction="sum")
        return losses / self.values.shape[1]

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return binary_kl(logits, teacher, temperature)

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        logits = self.logits(network, hidden, reader)
        return ((logits > 0) == (self.values > 0.5)).all(-1).sum()


@dataclass(frozen=True)
class RegressionAnswers:
    head: str
    values: Tensor  # (N,)

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """(N, 1): the predicted numbers."""
        return network.head(self.head)(hidden, reader).float()

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        return F.mse_loss(self.logits(network, hidden, reader)[:, 0], self.values, reduction="sum")

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return F.mse_loss(logits, teacher, reduction="sum")

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """Always 0: accuracy means nothing for numbers."""
        return self.values.new_zeros(())


@dataclass(frozen=True)
class SpanAnswers:
    head: str
    values: Tensor  # (S, 2) first and last token of the answer, counted in its sequence

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """(S, 2, longest), −∞ after the end of a sequence."""
        rows = network.head(self.head)(hidden, reader).float()
        return pad_sequence(list(reader.split(rows)), batch_first=True, padding_value=-torch.inf).transpose(1, 2)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        return F.cross_entropy(logits.flatten(0, 1), self.values.flatten(), reduction="sum") / 2

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return soft_kl(logits, teacher, temperature) / 2

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return (self.logits(network, hidden, reader).argmax(-1) == self.values).all(-1).sum()


def mean_of_windows(logits: Tensor, windows: tuple[int, ...] | None) -> Tensor:
    """(sequences, L) → (texts, L)."""
    return logits if windows is None else torch.stack([part.mean(0) for part in logits.split(list(windows))])
