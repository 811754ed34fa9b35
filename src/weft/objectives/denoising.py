"""Denoising of consecutive tokens as in BART (Lewis et al. 2020), for encoder–decoders: the sentences of the source are
permuted, then spans are masked. The decoder writes the whole text.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from weft.model.packed import pack
from weft.objectives.infilling import infill_spans
from weft.objectives.objective import Batch, HeadObjective, sample_generator
from weft.objectives.permutation import SentenceMarks, permute_sentences
from weft.tokens.shards import TokenShards


@dataclass(frozen=True)
class Denoising(HeadObjective):
    shards: TokenShards
    length: int  # tokens of the text
    mask: int
    marks: SentenceMarks
    end: int  # last token of source and target, and between documents
    start: int  # first token that the decoder reads
    share: float = 0.3
    mean_length: float = 3.0
    head: ClassVar[str] = "seq2seq"

    def __len__(self) -> int:
        return len(self.shards) // self.length

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        sources, targets = [], []
        for sample, epoch in zip(samples, epochs, strict=True):
            text = self.shards[sample * self.length : (sample + 1) * self.length]
            rng = sample_generator(seed, epoch, sample)
            permuted = permute_sentences(text, self.marks, self.end, rng)
            source = infill_spans(permuted, self.mask, rng, share=self.share, mean_length=self.mean_length)
            sources.append(np.append(source, self.end))
            targets.append(np.append(text, self.end))
        decoder = pack([np.concatenate([[self.start], target[:-1]]) for target in targets])
        wanted = torch.from_numpy(np.concatenate(targets))
        return Batch(pack(sources), wanted, decoder=decoder, counts={"seq2seq": len(wanted)})
