"""Span corruption of consecutive tokens, for encoder–decoders."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from weft.model.packed import pack
from weft.objectives.objective import Batch, HeadObjective, sample_generator
from weft.objectives.spans import corrupt_spans
from weft.tokens.shards import TokenShards


@dataclass(frozen=True)
class SpanCorruption(HeadObjective):
    shards: TokenShards
    length: int  # tokens before spans are cut out
    sentinels: tuple[int, ...]
    end: int  # last token of source and target
    start: int  # first token that the decoder reads
    share: float = 0.15
    mean_length: float = 3.0
    head: ClassVar[str] = "seq2seq"

    def __len__(self) -> int:
        return len(self.shards) // self.length

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        sources, targets = [], []
        for sample, epoch in zip(samples, epochs, strict=True):
            text = self.shards[sample * self.length : (sample + 1) * self.length]
            rng = sample_generator(seed, epoch, sample)
            source, target = corrupt_spans(text, self.sentinels, rng, share=self.share, mean_length=self.mean_length)
            sources.append(np.append(source, self.end))
            targets.append(np.append(target, self.end))
        decoder = pack([np.concatenate([[self.start], target[:-1]]) for target in targets])
        wanted = torch.from_numpy(np.concatenate(targets))
        return Batch(pack(sources), wanted, decoder=decoder, counts={"seq2seq": len(wanted)})
