"""One protocol for everything a model can learn: how samples become a batch, and what loss and scores come out.

A batch says which rows are scored (`rows`), against what (`targets`); an encoder–decoder has a second, packed target
side; a pair objective has a label per sequence. `counts` says over how many scored items each loss is to be averaged,
so that the caller can divide by the true count of a whole step, however it is cut into pieces.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.loss import vocabulary_loss
from weft.model.network import Network
from weft.model.packed import Packed


@dataclass(frozen=True)
class Batch:
    packed: Packed
    targets: Tensor  # (N,) right tokens
    rows: Tensor | None = None  # (N,) the tokens that are scored; none: all
    decoder: Packed | None = None  # what the decoder reads
    labels: Tensor | None = None  # (S,) right answers about whole sequences
    counts: dict[str, int] = field(default_factory=dict)  # scored items by head

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        moved = {name: getattr(self, name) for name in ("packed", "targets", "rows", "decoder", "labels")}
        return replace(self, **{name: part.to(device) for name, part in moved.items() if part is not None})


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
        head, scale = network.head(kind), 1 / max(total, 1)
        if kind == "next-sentence" and batch.labels is not None:
            loss = loss + F.cross_entropy(head(hidden, reader), batch.labels, reduction="sum") * scale
        else:
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
        head = network.head(kind)
        wanted = batch.targets if batch.labels is None or kind != "next-sentence" else batch.labels
        logits = head(hidden, reader, batch.rows if wanted is batch.targets else None)
        sums[f"loss/{kind}"] = float(F.cross_entropy(logits.float(), wanted, reduction="sum"))
        sums[f"right/{kind}"] = float((logits.argmax(-1) == wanted).sum())
    return sums
