"""The original encoder–decoder (Vaswani et al. 2017): post-norm, sinusoidal positions, embeddings scaled by √W.

Saved as Hugging Face's `marian`, which is the same network. Marian's own checkpoints use SiLU instead of ReLU.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, head_width, plain_attention
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.heads import HeadSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Sinusoidal
from weft.model.stack import StackSpec


@dataclass(frozen=True)
class Transformer(Family):
    name: ClassVar[str] = "transformer"
    default_head: ClassVar[str] = "seq2seq"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "base": {"layers": 6, "width": 512, "heads": 8, "inner": 2048},
        "big": {"layers": 6, "width": 1024, "heads": 16, "inner": 4096, "dropout": 0.3},
    }

    vocabulary: int = 37_000
    layers: int = 6
    decoder_layers: int | None = None  # as `layers`
    width: int = 512
    heads: int = 8
    decoder_heads: int | None = None  # as `heads`
    inner: int | None = None  # 4 × width
    decoder_inner: int | None = None  # as `inner`
    positions: int = 1024
    activation: Activation = "relu"
    scaled_embedding: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    inner_dropout: float = 0.0
    tied: bool = True
    shared_embedding: bool = True
    init_std: float = 0.02

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        inner = self.inner or 4 * self.width
        encoder = StackSpec((self._block(self.heads, inner),) * self.layers)
        decoder = StackSpec(
            (self._block(self.decoder_heads or self.heads, self.decoder_inner or inner),)
            * (self.decoder_layers or self.layers),
            causal=True,
            cross=True,
        )
        head = head or self.default_head
        known = {
            # Marian has a bias on the logits that is stored but not trained.
            "seq2seq": (HeadSpec("seq2seq", self.vocabulary, bias="fixed", tied=self.tied),),
            "none": (),
        }
        if head not in known:
            raise self.unknown_head(head, list(known))
        return Architecture(
            self.name,
            EmbeddingSpec(
                self.vocabulary,
                self.width,
                Sinusoidal(self.positions),
                scaled=self.scaled_embedding,
                dropout=self.dropout,
            ),
            encoder=encoder,
            decoder=decoder,
            heads=known[head],
            shared_embedding=self.shared_embedding,
            init=InitSpec(std=self.init_std),
        )

    def _block(self, heads: int, inner: int) -> BlockSpec:
        size = head_width(self.name, self.width, heads)
        return BlockSpec(
            plain_attention(heads, size, bias=True, dropout=self.attention_dropout),
            FeedForwardSpec(inner, self.activation, dropout=self.inner_dropout),
            NormSpec("layer", 1e-5),
            order="post",
            attention_dropout=self.dropout,
            feedforward_dropout=self.dropout,
        )
