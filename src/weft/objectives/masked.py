"""Masked language modelling on consecutive tokens, [CLS] … [SEP]."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from weft.model.packed import pack
from weft.objectives.masking import DEFAULT_MASKING, MaskSpec, Vocabulary, cover_round, mask_tokens
from weft.objectives.objective import Batch, HeadObjective, sample_generator
from weft.tokens.shards import TokenShards


@dataclass(frozen=True)
class Masked(HeadObjective):
    shards: TokenShards
    length: int  # including [CLS] and [SEP]
    vocabulary: Vocabulary
    frame: tuple[int, int]  # [CLS], [SEP]
    spec: MaskSpec = DEFAULT_MASKING
    head: ClassVar[str] = "masked"

    def __len__(self) -> int:
        return len(self.shards) // (self.length - 2)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        room = self.length - 2
        texts = [self._framed(self.shards[sample * room : (sample + 1) * room]) for sample in samples]
        return masked_batch(texts, samples, epochs, seed, self.spec, self.vocabulary)

    def _framed(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([self.frame[:1], ids, self.frame[1:]])


def masked_batch(
    texts: list[np.ndarray],
    samples: list[int],
    epochs: list[int],
    seed: int,
    spec: MaskSpec,
    vocabulary: Vocabulary,
    segments: list[np.ndarray] | None = None,
) -> Batch:
    """Mask each text with its own random generator. The masked tokens are the targets."""
    inputs, rows, targets, start = [], [], [], 0
    for text, sample, epoch in zip(texts, samples, epochs, strict=True):
        turn = cover_round(spec, epoch) if spec.unit == "cover" else epoch
        rng = sample_generator(seed, turn, sample)
        read, places = mask_tokens(text, spec, vocabulary, rng, epoch=epoch)
        inputs.append(read)
        rows.append(places + start)
        targets.append(text[places])
        start += len(text)
    count = sum(map(len, rows))
    return Batch(
        pack(inputs, segments),
        torch.from_numpy(np.concatenate(targets)),
        rows=torch.from_numpy(np.concatenate(rows)),
        counts={"masked": count},
    )
