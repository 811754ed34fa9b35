"""The protocol of everything a model can learn: samples -> batch -> loss and scores.

A batch names the tokens that the language head predicts (`rows`) and their targets. An encoder–decoder has a second
packed side, `decoder`. `answers` are the targets of other heads. `counts` holds the number of scored items per head:
a loss is divided by the count of the whole step, however the step is cut into pieces or shared among processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.heads import Head
from weft.model.loss import vocabulary_loss
from weft.model.network import Network
from weft.model.packed import Packed
from weft.model.sliced_loss import VocabularySlice, sliced_scores
from weft.model.transfer import moved
from weft.objectives.answers import Answers


@dataclass(frozen=True)
class Batch:
    packed: Packed
    targets: Tensor | None = None  # (N,) token ids that the language head should predict
    rows: Tensor | None = None  # (N,) the tokens that are scored. None: all
    decoder: Packed | None = None  # what the decoder reads
    answers: Mapping[str, Answers] = field(default_factory=dict)  # targets of the other heads, by head
    counts: dict[str, int] = field(default_factory=dict)  # scored items, by head

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Batch":
        return moved(self, device, non_blocking=non_blocking)

    @property
    def scored(self) -> int:
        """Tokens that go through the language head."""
        return 0 if self.targets is None else len(self.targets)


class Objective(Protocol):
    """All objectives of a run (one per source) share one loss: `loss` and `scores` depend on their arguments only."""

    def __len__(self) -> int:
        """Samples in an epoch."""

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        """The batch of these samples. A sample's masks depend on its epoch."""

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        """This batch's share of the step's loss. `totals` are the counts of the whole step."""

    def scores(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """Sums over the batch for validation, `loss/<head>` and `right/<head>`; divided by `counts` they are means."""


@dataclass(frozen=True)
class HeadObjective:
    """The loss of a plain objective: the sum of its heads' losses, with label smoothing."""

    smoothing: float = field(default=0.0, kw_only=True)

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        return scaled_loss(network, batch, totals, self.smoothing)

    def scores(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        return head_scores(network, batch)


def sample_generator(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """The random generator of one sample in one epoch. It does not depend on the rest of the batch."""
    return np.random.Generator(np.random.SFC64([seed, epoch, sample]))


def scaled_loss(network: Network, batch: Batch, totals: Mapping[str, int], smoothing: float = 0.0) -> Tensor:
    """The sum over heads of the head's summed loss divided by its count in the whole step."""
    hidden = network(batch.packed, batch.decoder)
    reader = batch.decoder or batch.packed
    loss = hidden.new_zeros(())
    for kind, total in totals.items():
        scale = 1 / max(total, 1)
        if kind in batch.answers:
            loss = loss + batch.answers[kind].loss(network, hidden, reader, smoothing) * scale
        else:
            assert batch.targets is not None
            head = network.head(kind)
            prepared = head.prepare(hidden, reader, batch.rows)
            loss = loss + vocabulary_loss(head, prepared, batch.targets, scale=scale, smoothing=smoothing)
    return loss


@torch.no_grad()
def head_scores(network: Network, batch: Batch) -> dict[str, Tensor]:
    """`loss/<head>`: the summed loss without smoothing. `right/<head>`: the number of correct predictions."""
    hidden = network(batch.packed, batch.decoder)
    reader = batch.decoder or batch.packed
    sums: dict[str, Tensor] = {}
    for kind in batch.counts:
        if kind in batch.answers:
            answers = batch.answers[kind]
            loss, right = answers.loss(network, hidden, reader, 0.0), answers.correct(network, hidden, reader)
        else:
            assert batch.targets is not None
            loss, right = _vocabulary_scores(network.head(kind), hidden, reader, batch.rows, batch.targets)
        sums |= {f"loss/{kind}": loss, f"right/{kind}": right}
    return sums


def _vocabulary_scores(
    head: Head, hidden: Tensor, reader: Packed, rows: Tensor | None, targets: Tensor
) -> tuple[Tensor, Tensor]:
    if isinstance(head.out, VocabularySlice):
        return sliced_scores(head.out, head.prepare(hidden, reader, rows), targets)
    logits = head(hidden, reader, rows)
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return loss, (logits.argmax(-1) == targets).sum()
