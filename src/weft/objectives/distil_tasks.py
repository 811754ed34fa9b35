"""Distillation of a tuned model in two stages (TinyBERT, Jiao et al. 2020).

    intermediate   attention scores, hidden states and embeddings of mapped layers; the head is not trained
    prediction     (1 − λ) · distance to the teacher's logits + λ · loss of the labels

Layers are mapped uniformly: of M student and N teacher layers, the output of layer i is compared with that of layer
i N / M, and its attention with that of the layer that made it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from weft.model.keep import Keep
from weft.model.network import Network
from weft.objectives.distil_losses import attention_distance, hidden_distance
from weft.objectives.distil_projections import in_teacher_width
from weft.objectives.distil_teacher import Wanted, scores_of
from weft.objectives.distil_text import SEQUENCES, Distillation
from weft.objectives.objective import Batch


def uniform_mapping(student: int, teacher: int) -> tuple[int, ...]:
    """For the output of each student layer, the number of the teacher's layer, counted from 1 to `teacher`."""
    return tuple(max(1, round((layer + 1) * teacher / student)) for layer in range(student))


def wanted_for_layers(mapping: tuple[int, ...]) -> Wanted:
    return Wanted(hidden=(0, *mapping), scores=tuple(number - 1 for number in mapping))


@dataclass(frozen=True)
class IntermediateDistillation(Distillation):
    mapping: tuple[int, ...]  # of each student layer, from 1 on

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        outputs, layers = self.teacher(batch), range(len(self.mapping))
        keep = Keep(hidden=(0, *(layer + 1 for layer in layers)), scores=tuple(layers))
        _, kept = network(batch.packed, keep=keep)
        loss = hidden_distance(
            in_teacher_width(network, "embedding", kept.hidden[0]), outputs["hidden.0"], batch.packed
        )
        for layer, number in zip(layers, self.mapping, strict=True):
            ours = in_teacher_width(network, "hidden", kept.hidden[layer + 1])
            loss = loss + hidden_distance(ours, outputs[f"hidden.{number}"], batch.packed)
            loss = loss + attention_distance(kept.scores[layer], scores_of(outputs, number - 1, batch.packed))
        return loss / totals[SEQUENCES]


@dataclass(frozen=True)
class PredictionDistillation(Distillation):
    temperature: float = 1.0
    label_share: float = 0.0
    smoothing: float = 0.0

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        outputs = self.teacher(batch)
        hidden, packed = network(batch.packed), batch.packed
        loss = hidden.new_zeros(())
        for kind, answers in batch.answers.items():
            scale = 1 / max(totals[kind], 1)
            if self.label_share < 1:
                ours = answers.logits(network, hidden, packed)
                distance = answers.distance(ours, outputs[f"logits.{kind}"], self.temperature)
                loss = loss + (1 - self.label_share) * scale * distance
            if self.label_share:
                loss = loss + self.label_share * scale * answers.loss(network, hidden, packed, self.smoothing)
        return loss
