"""What a head other than the language model's is asked, and how a wrong answer counts.

    ClassAnswers   one of L labels for each row           −log softmax(z)[y], weighted by class if wished
    MultiLabelAnswers   any number of L labels                  −Σ log σ(±z) / L
    RegressionAnswers    a number                                (z − y)²
    SpanAnswers     where an answer begins and ends         −(log softmax(z_begin)[b] + log softmax(z_end)[e]) / 2,
                                                      over the tokens of each sequence

A row is a sequence where the head pools, otherwise a token that is asked about. Losses are sums over rows: whoever
knows how many rows a whole step has divides by that.
"""

from dataclasses import dataclass, fields, replace
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from weft.model.network import Network
from weft.model.packed import Packed


class Answers(Protocol):
    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor: ...

    def right(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """How many rows are answered rightly."""

    def to(self, device: torch.device) -> Self: ...


class _Movable:
    def to(self, device: torch.device) -> Self:
        mine = {knob.name: getattr(self, knob.name) for knob in fields(self)}  # type: ignore[arg-type]
        return replace(self, **{name: v.to(device) for name, v in mine.items() if isinstance(v, Tensor)})  # type: ignore[type-var]


@dataclass(frozen=True)
class ClassAnswers(_Movable):
    head: str
    values: Tensor  # (N,)
    rows: Tensor | None = None  # (N,) the tokens that are asked about, where the head does not pool
    weights: Tensor | None = None  # (L,) of classes, so that rare ones count more
    among: tuple[int, int] | None = None  # only these of the head's outputs are in question; `values` count from there

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        found = network.head(self.head)(hidden, reader, self.rows).float()
        return found if self.among is None else found[:, self.among[0] : self.among[1]]

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        # The sum: torch's mean divides by the weights of this batch, and a step cut in two would not be the same.
        return F.cross_entropy(logits, self.values, self.weights, reduction="sum", label_smoothing=smoothing)

    def right(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return (self.logits(network, hidden, reader).argmax(-1) == self.values).sum()


@dataclass(frozen=True)
class MultiLabelAnswers(_Movable):
    head: str
    values: Tensor  # (N, L) 0 or 1
    weights: Tensor | None = None  # (L,) of the labels that are there

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = network.head(self.head)(hidden, reader).float()
        wanted = self.values * (1 - smoothing) + smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, wanted, pos_weight=self.weights, reduction="sum")
        return losses / self.values.shape[1]

    def right(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        logits = network.head(self.head)(hidden, reader)
        return ((logits > 0) == (self.values > 0.5)).all(-1).sum()


@dataclass(frozen=True)
class RegressionAnswers(_Movable):
    head: str
    values: Tensor  # (N,)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        found = network.head(self.head)(hidden, reader).float()[:, 0]
        return F.mse_loss(found, self.values, reduction="sum")

    def right(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """A number is never quite right."""
        return self.values.new_zeros(())


@dataclass(frozen=True)
class SpanAnswers(_Movable):
    head: str
    values: Tensor  # (S, 2) the first and the last token of the answer, counted in its sequence

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        """(S, 2, longest), −∞ behind the end of a sequence."""
        rows = network.head(self.head)(hidden, reader).float()
        return pad_sequence(list(reader.split(rows)), batch_first=True, padding_value=-torch.inf).transpose(1, 2)

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        logits = self.logits(network, hidden, reader)
        return F.cross_entropy(logits.flatten(0, 1), self.values.flatten(), reduction="sum") / 2

    def right(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return (self.logits(network, hidden, reader).argmax(-1) == self.values).all(-1).sum()
