"""GPT-2 (Radford et al. 2019), with GPT-3's sizes (Brown et al. 2020): a pre-norm decoder with learned positions."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, head_width, plain_attention, token_head
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.heads import HeadSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Learned
from weft.model.stack import StackSpec


@dataclass(frozen=True)
class Gpt2(Family):
    name: ClassVar[str] = "gpt2"
    default_head: ClassVar[str] = "causal"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"layers": 12, "width": 768, "heads": 12},
        "medium": {"layers": 24, "width": 1024, "heads": 16},
        "large": {"layers": 36, "width": 1280, "heads": 20},
        "xl": {"layers": 48, "width": 1600, "heads": 25},
        # Brown et al. 2020, table 2.1. Two rows there contradict themselves (heads × head width ≠ width); taken here as
        # 16 heads of 128 for 1.3B, and width 5120 for 13B. GPT-3's sparse layers are dense here.
        "gpt3-125m": {"layers": 12, "width": 768, "heads": 12, "positions": 2048},
        "gpt3-350m": {"layers": 24, "width": 1024, "heads": 16, "positions": 2048},
        "gpt3-760m": {"layers": 24, "width": 1536, "heads": 16, "positions": 2048},
        "gpt3-1.3b": {"layers": 24, "width": 2048, "heads": 16, "positions": 2048},
        "gpt3-2.7b": {"layers": 32, "width": 2560, "heads": 32, "positions": 2048},
        "gpt3-6.7b": {"layers": 32, "width": 4096, "heads": 32, "positions": 2048},
        "gpt3-13b": {"layers": 40, "width": 5120, "heads": 40, "positions": 2048},
        "gpt3-175b": {"layers": 96, "width": 12_288, "heads": 96, "positions": 2048},
    }

    vocabulary: int = 50_257
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int | None = None  # 4 × width
    positions: int = 1024
    activation: Activation = "gelu-tanh"
    epsilon: float = 1e-5
    dropout: float = 0.1
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float = 0.1
    scaled: bool = True
    tied: bool = True
    init_std: float = 0.02
    head_width: int | None = None  # width / heads

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        size = head_width(self.name, self.width, self.heads, self.head_width)
        attention = plain_attention(self.heads, size, bias=True, dropout=self.attention_dropout)
        block = BlockSpec(
            replace(attention, scaled=self.scaled),
            FeedForwardSpec(self.inner or 4 * self.width, self.activation),
            NormSpec("layer", self.epsilon),
            order="pre",
            attention_dropout=self.dropout,
            feedforward_dropout=self.dropout,
        )
        return Architecture(
            self.name,
            EmbeddingSpec(self.vocabulary, self.width, Learned(self.positions), dropout=self.embedding_dropout),
            decoder=StackSpec((block,) * self.layers, causal=True, final_norm=True),
            heads=causal_heads(self, head or self.default_head, labels, self.tied, self.classifier_dropout),
            init=InitSpec(std=self.init_std, depth_scaled=True),
        )


def causal_heads(family: Family, head: str, labels: int, tied: bool, dropout: float) -> tuple[HeadSpec, ...]:
    """The heads of a decoder. Sequence heads read the last token, the only one that sees the whole sequence."""
    known = {
        "causal": (HeadSpec("causal", family.vocabulary, bias="none", tied=tied),),
        "sequence": (HeadSpec("sequence", labels, "last", bias="none"),),
        "token": (token_head("token", labels, dropout),),
        "span": (token_head("span", labels),),
        "none": (),
    }
    if head not in known:
        raise family.unknown_head(head, list(known))
    return known[head]
