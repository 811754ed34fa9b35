"""Distillation with a language head: pre-training on plain text, and tasks that write a text.

method       loss, as means over scored tokens, tokens or sequences
kl           KL(T = 1)
distilbert   5 KL(T = 2) + 2 cross-entropy + 1 (1 − cos of the last hidden states)      Sanh et al. 2019
minilm       relations of queries, keys and values of the last layer                    Wang et al. 2021
minilm+kl    both: relations teach the layers, KL the head
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from weft.model.keep import Keep
from weft.model.network import Network
from weft.objectives.distil_losses import cosine_distance, relation_heads, relation_kl
from weft.objectives.distil_projections import in_teacher_width
from weft.objectives.distil_teacher import Outputs, Teacher, Wanted
from weft.objectives.distil_vocabulary import vocabulary_kl
from weft.objectives.objective import Batch, Objective

SEQUENCES, TOKENS = "sequences", "tokens"  # counts of a batch besides those of its heads


@dataclass(frozen=True)
class TextLosses:
    """Weights of the losses."""

    soft: float = 0.0
    hard: float = 0.0
    cosine: float = 0.0
    relations: float = 0.0
    temperature: float = 1.0


TEXT_METHODS = {
    "kl": TextLosses(soft=1.0),
    "distilbert": TextLosses(soft=5.0, hard=2.0, cosine=1.0, temperature=2.0),
    "minilm": TextLosses(relations=1.0),
    "minilm+kl": TextLosses(soft=1.0, relations=1.0),
}


def wanted_for_text(losses: TextLosses, head: str, layer: int) -> Wanted:
    """`layer`: the teacher's layer whose relations are learned."""
    return Wanted(
        heads=(layer,) if losses.relations else (),
        last=bool(losses.cosine),
        language_head=head if losses.soft or losses.hard else None,
    )


@dataclass(frozen=True)
class Distillation(ABC):
    """An objective whose batches are those of `inner`, and whose loss compares with a teacher."""

    inner: Objective
    teacher: Teacher

    def __len__(self) -> int:
        return len(self.inner)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        batch = self.inner.batch(samples, epochs, seed)
        reader = batch.decoder or batch.packed
        return replace(batch, counts={**batch.counts, SEQUENCES: len(reader.lengths), TOKENS: sum(reader.lengths)})

    @abstractmethod
    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor: ...

    def scores(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        counts = {kind: count for kind, count in batch.counts.items() if kind not in (SEQUENCES, TOKENS)}
        return self.inner.scores(network, replace(batch, counts=counts))


@dataclass(frozen=True)
class TextDistillation(Distillation):
    head: str
    losses: TextLosses

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        losses, outputs = self.losses, self.teacher(batch)
        if losses.relations:
            last = _last_layer(network)
            hidden, kept = network(batch.packed, batch.decoder, keep=Keep(heads=(last,)))
            loss = losses.relations / totals[SEQUENCES] * self._relations(kept.heads[last], outputs, batch)
        else:
            hidden = network(batch.packed, batch.decoder)
            loss = hidden.new_zeros(())
        if losses.cosine:
            ours = in_teacher_width(network, "hidden", hidden)
            loss = loss + losses.cosine / totals[TOKENS] * cosine_distance(ours, outputs["last"])
        if losses.soft or losses.hard:
            loss = loss + self._vocabulary(network, hidden, outputs, batch) / max(totals[self.head], 1)
        return loss

    def _relations(self, heads: list[Tensor], outputs: Outputs, batch: Batch) -> Tensor:
        (layer,) = self.teacher.wanted.heads
        total = heads[0].new_zeros(())
        for name, ours in zip("qkv", heads, strict=True):
            theirs = outputs[f"heads.{layer}.{name}"]
            count = relation_heads(ours[0].numel(), theirs[0].numel())
            total = total + relation_kl(ours, theirs, batch.packed, count)
        return total

    def _vocabulary(self, network: Network, hidden: Tensor, outputs: Outputs, batch: Batch) -> Tensor:
        assert batch.targets is not None
        head, losses = network.head(self.head), self.losses
        return vocabulary_kl(
            head,
            head.prepare(hidden, batch.decoder or batch.packed, batch.rows),
            self.teacher.network.head(self.head),
            outputs["rows"],
            batch.targets,
            temperature=losses.temperature,
            soft=losses.soft,
            hard=losses.hard,
        )


def _last_layer(network: Network) -> int:
    stack = network.encoder if network.encoder is not None else network.decoder
    assert stack is not None
    return len(stack.blocks) - 1
