"""One protocol for everything a model can learn: how samples become a batch, and what loss and scores come out.

A batch says which tokens the language head is to guess (`rows`), and what is right (`targets`); an encoder–decoder has
a second, packed target side; `answers` are what other heads are asked. `counts` says over how many scored items each
loss is to be averaged, so that the caller can divide by the true count of a whole step, however it is cut into pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.loss import vocabulary_loss
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import Answers


@dataclass(frozen=True)
class Batch:
    packed: Packed
    targets: Tensor | None = None  # (N,) right tokens
    rows: Tensor | None = None  # (N,) the tokens that are scored; none: all
    decoder: Packed | None = None  # what the decoder reads
    answers: Mapping[str, Answers] = field(default_factory=dict)  # right answers of other heads
    counts: dict[str, int] = field(default_factory=dict)  # scored items: of the language head, of each of `answers`

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        moved = {name: getattr(self, name) for name in ("packed", "targets", "rows", "decoder")}
        here = {name: part.to(device) for name, part in moved.items() if part is not None}
        return replace(self, **here, answers={name: part.to(device) for name, part in self.answers.items()})

    @property
    def scored(self) -> int:
        """Tokens that go through the language head."""
        return 0 if self.targets is None else len(self.targets)


class Objective(Protocol):
    def __len__(self) -> int:
        """Samples in an epoch."""

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        """The batch of these samples, each as it is in its epoch."""


def sample_generator(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Chance for one sample in one epoch, whoever asks and whatever else is in the batch."""
    return np.random.Generator(np.random.SFC64([seed, epoch, sample]))


def scaled_loss(network: Network, batch: Batch, totals: dict[str, int], smoothing: float = 0.0) -> Tensor:
    """This batch's share of the step's loss: each head's sum divided by the head's count in the whole step."""
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
def scores(network: Network, batch: Batch) -> dict[str, float]:
    """Sums over the batch: `loss/masked`, `right/masked` and so on; divide by `counts` for means."""
    hidden = network(batch.packed, batch.decoder)
    reader = batch.decoder or batch.packed
    sums: dict[str, float] = {}
    for kind in batch.counts:
        if kind in batch.answers:
            answers = batch.answers[kind]
            loss, right = answers.loss(network, hidden, reader, 0.0), answers.right(network, hidden, reader)
        else:
            assert batch.targets is not None
            logits = network.head(kind)(hidden, reader, batch.rows)
            loss = F.cross_entropy(logits.float(), batch.targets, reduction="sum")
            right = (logits.argmax(-1) == batch.targets).sum()
        sums |= {f"loss/{kind}": float(loss), f"right/{kind}": float(right)}
    return sums
