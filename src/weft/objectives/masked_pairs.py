"""Masked language modelling and a label of two segments, jointly: [CLS] A [SEP] B [SEP] (Devlin et al. 2019)."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from weft.objectives.answers import ClassAnswers
from weft.objectives.masked import masked_batch
from weft.objectives.masking import DEFAULT_MASKING, MaskSpec, Vocabulary
from weft.objectives.objective import Batch, HeadObjective, sample_generator
from weft.objectives.sentence_pairs import SentencePairs


@dataclass(frozen=True)
class MaskedPairs(HeadObjective):
    pairs: SentencePairs
    length: int  # including [CLS] and two [SEP]
    vocabulary: Vocabulary
    frame: tuple[int, int]  # [CLS], [SEP]
    spec: MaskSpec = DEFAULT_MASKING
    head: ClassVar[str] = "masked+next-sentence"

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        begin, end = np.asarray(self.frame[:1]), np.asarray(self.frame[1:])
        texts, segments, labels = [], [], []
        for sample, epoch in zip(samples, epochs, strict=True):
            # A generator of its own: the pair must not depend on how many numbers masking draws.
            pair = self.pairs.pair(sample, self.length - 3, sample_generator(seed + 1, epoch, sample))
            first, second = np.concatenate([begin, pair.first, end]), np.concatenate([pair.second, end])
            texts.append(np.concatenate([first, second]))
            segments.append(np.repeat([0, 1], [len(first), len(second)]))
            labels.append(pair.label)
        batch = masked_batch(texts, samples, epochs, seed, self.spec, self.vocabulary, segments)
        counts = {**batch.counts, "next-sentence": len(labels)}
        answers = {"next-sentence": ClassAnswers("next-sentence", torch.tensor(labels))}
        return replace(batch, answers=answers, counts=counts)
