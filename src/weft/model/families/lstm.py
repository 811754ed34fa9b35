"""The LSTM language model, the historical baseline (Zaremba et al. 2014). It has no Hugging Face family."""

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family
from weft.model.families.gpt2 import causal_heads
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.recurrent import RecurrentSpec


@dataclass(frozen=True)
class Lstm(Family):
    name: ClassVar[str] = "lstm"
    default_head: ClassVar[str] = "causal"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"layers": 2, "width": 200, "dropout": 0.0},
        "medium": {"layers": 2, "width": 650, "dropout": 0.5},
        "large": {"layers": 2, "width": 1500, "dropout": 0.65},
    }

    vocabulary: int = 10_000
    layers: int = 2
    width: int = 650
    heads: int = 1  # ignored; lets a recipe change only `family`
    dropout: float = 0.0
    tied: bool = True  # Press & Wolf 2017

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        return Architecture(
            self.name,
            EmbeddingSpec(self.vocabulary, self.width, dropout=self.dropout),
            recurrent=RecurrentSpec(self.layers, self.dropout),
            heads=causal_heads(self, head or self.default_head, labels, self.tied, self.dropout),
            init=InitSpec(std=0.05),
        )
