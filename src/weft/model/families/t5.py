"""T5 (Raffel et al. 2020): a pre-norm text-to-text encoder–decoder with RMSNorm and relative position biases.

v1.0 has a plain ReLU feedforward and a tied output matrix; v1.1 (Shazeer 2020) has gated GELU and an untied one.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from weft.errors import RecipeError
from weft.model.attention import AttentionSpec
from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, token_head
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.heads import DenseSpec, HeadSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Relative
from weft.model.stack import StackSpec

_V1_1 = {"activation": "gelu-tanh", "gated": True, "tied": False, "output_scaled": False}


@dataclass(frozen=True)
class T5(Family):
    name: ClassVar[str] = "t5"
    default_head: ClassVar[str] = "seq2seq"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"layers": 6, "width": 512, "heads": 8, "inner": 2048},
        "base": {"layers": 12, "width": 768, "heads": 12, "inner": 3072},
        "large": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096},
        "3b": {"layers": 24, "width": 1024, "heads": 32, "head_width": 128, "inner": 16_384},
        "11b": {"layers": 24, "width": 1024, "heads": 128, "head_width": 128, "inner": 65_536},
        "v1.1-small": {"layers": 8, "width": 512, "heads": 6, "inner": 1024, **_V1_1},
        "v1.1-base": {"layers": 12, "width": 768, "heads": 12, "inner": 2048, **_V1_1},
        "v1.1-large": {"layers": 24, "width": 1024, "heads": 16, "inner": 2816, **_V1_1},
        "v1.1-xl": {"layers": 24, "width": 2048, "heads": 32, "inner": 5120, **_V1_1},
        "v1.1-xxl": {"layers": 24, "width": 4096, "heads": 64, "inner": 10_240, **_V1_1},
    }

    vocabulary: int = 32_128
    layers: int = 6
    decoder_layers: int | None = None  # as `layers`
    width: int = 512
    heads: int = 8
    head_width: int = 64
    inner: int | None = None  # 4 × width
    buckets: int = 32
    distance: int = 128
    activation: Activation = "relu"
    gated: bool = False
    epsilon: float = 1e-6
    dropout: float = 0.1
    classifier_dropout: float = 0.0
    tied: bool = True
    output_scaled: bool = True  # the decoder's output is divided by √W before the vocabulary

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        if self.buckets < 4 or self.distance <= self.buckets // 2:
            raise RecipeError(
                f"t5: buckets is {self.buckets} and distance {self.distance}; buckets must be at least 4, and "
                "distance more than half of buckets."
            )
        encoder = StackSpec((self._block(),) * self.layers, final_norm=True, dropout=self.dropout)
        decoder = replace(
            encoder, blocks=(self._block(),) * (self.decoder_layers or self.layers), causal=True, cross=True
        )
        head = head or self.default_head
        encoder_only = head in ("token", "encoder")
        return Architecture(
            self.name,
            EmbeddingSpec(self.vocabulary, self.width, Relative(self.buckets, self.distance), dropout=self.dropout),
            encoder=encoder,
            decoder=None if encoder_only else decoder,
            heads=self._heads(head, labels),
            init=InitSpec("t5"),
        )

    def _block(self) -> BlockSpec:
        attention = AttentionSpec(
            self.heads, self.head_width, self.heads, bias=False, out_bias=False, scaled=False, dropout=self.dropout
        )
        inner = self.inner or 4 * self.width
        return BlockSpec(
            attention,
            FeedForwardSpec(inner, self.activation, gated=self.gated, bias=False, dropout=self.dropout),
            NormSpec("rms", self.epsilon, bias=False),
            order="pre",
            attention_dropout=self.dropout,
            feedforward_dropout=self.dropout,
        )

    def _heads(self, head: str, labels: int) -> tuple[HeadSpec, ...]:
        scale = self.width**-0.5 if self.output_scaled else None
        dropout = self.classifier_dropout
        known = {
            "seq2seq": (HeadSpec("seq2seq", self.vocabulary, bias="none", tied=self.tied, scale=scale),),
            "sequence": (HeadSpec("sequence", labels, "last", DenseSpec("tanh", dropout=dropout), dropout=dropout),),
            "token": (token_head("token", labels, dropout),),
            "span": (token_head("span", labels),),
            "encoder": (),
            "none": (),
        }
        if head not in known:
            raise self.unknown_head(head, list(known))
        return known[head]
