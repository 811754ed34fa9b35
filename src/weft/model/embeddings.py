"""From token ids to vectors: x = scale · E[token] + P[position] + G[segment], then norm and dropout.

The three-way sum is BERT's (Devlin et al. 2019, figure 2); the original Transformer scales by √W and has no
segments; GPT-2 has no norm here; models with rotary or relative positions add no position vector.
"""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from weft.model.dropout import Dropout
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import Packed
from weft.model.positions import Learned, Positions, Sinusoidal, make_table, sinusoid_table


@dataclass(frozen=True)
class EmbeddingSpec:
    vocabulary: int
    width: int
    positions: Positions | None = None  # None: no position encoding (LSTM)
    segments: int = 0
    scaled: bool = False
    norm: NormSpec | None = None
    dropout: float = 0.0


class Embeddings(nn.Module):
    def __init__(self, spec: EmbeddingSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tokens = make_table(spec.vocabulary, spec.width)
        learned = isinstance(spec.positions, Learned)
        self.positions = make_table(spec.positions.size, spec.width) if learned else None
        self.segments = make_table(spec.segments, spec.width) if spec.segments else None
        self.norm = make_norm(spec.norm, spec.width) if spec.norm else None
        self.dropout = Dropout(spec.dropout)

    def forward(self, batch: Packed) -> Tensor:
        """Returns (T, W)."""
        x = self.tokens(batch.tokens)
        if self.spec.scaled:
            x = x * math.sqrt(self.spec.width)
        if self.positions is not None:
            x = x + self.positions(batch.positions + self.spec.positions.offset)
        elif isinstance(self.spec.positions, Sinusoidal):
            x = x + sinusoid_table(batch.positions, self.spec.width, x.dtype)
        if self.segments is not None:
            # Default segment: 0. Indexing the table keeps the row's gradient.
            x = x + (self.segments.weight[0] if batch.segments is None else self.segments(batch.segments))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)
