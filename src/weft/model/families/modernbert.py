"""The modern encoder. ModernBERT (Warner et al. 2024): pre-norm without biases, rotary positions, gated GELU, and
local attention in two layers out of three (64 tokens to each side).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from weft.errors import RecipeError
from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, head_width, plain_attention
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.heads import DenseSpec, HeadSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Rotary
from weft.model.stack import LocalSpec, StackSpec


@dataclass(frozen=True)
class ModernBert(Family):
    name: ClassVar[str] = "modernbert"
    default_head: ClassVar[str] = "masked"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "base": {"layers": 22, "width": 768, "heads": 12, "inner": 1152},
        "large": {"layers": 28, "width": 1024, "heads": 16, "inner": 2624},
    }

    vocabulary: int = 50_368
    layers: int = 22
    width: int = 768
    heads: int = 12
    inner: int | None = None  # 1.5 × width
    positions: int = 8192
    window: int = 128  # tokens on both sides together
    local_layers: tuple[int, ...] | None = None  # all but every third
    theta: float = 160_000.0
    local_theta: float = 10_000.0
    activation: Activation = "gelu"
    epsilon: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    feedforward_bias: bool = False
    embedding_dropout: float = 0.0
    dropout: float = 0.0  # inside the feedforward
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.0
    classifier_activation: Activation = "gelu"
    classifier_bias: bool = False
    classifier_pooling: Literal["first", "mean"] = "mean"  # as in the published checkpoints
    output_bias: bool = True
    tied: bool = True
    init_std: float = 0.02

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        norm = NormSpec("layer", self.epsilon, self.norm_bias)
        size = head_width(self.name, self.width, self.heads)
        if size % 2:
            raise RecipeError(f"{self.name}: rotary positions need an even head width, not {size}.")
        block = BlockSpec(
            plain_attention(self.heads, size, bias=self.attention_bias, dropout=self.attention_dropout),
            FeedForwardSpec(
                self.inner or 3 * self.width // 2,
                self.activation,
                gated=True,
                bias=self.feedforward_bias,
                dropout=self.dropout,
            ),
            norm,
            order="pre",
            attention_dropout=self.attention_dropout,
        )
        embedding = EmbeddingSpec(
            self.vocabulary, self.width, Rotary(self.positions, self.theta), norm=norm, dropout=self.embedding_dropout
        )
        local = self.local_layers
        if local is None:
            local = tuple(layer for layer in range(self.layers) if layer % 3)
        return Architecture(
            self.name,
            embedding,
            encoder=StackSpec(
                (block,) * self.layers,
                final_norm=True,
                first_norm=False,
                local=LocalSpec(local, self.window // 2, self.local_theta) if local else None,
            ),
            heads=self._heads(head or self.default_head, labels, norm),
            init=InitSpec(std=self.init_std, depth_scaled=True),
        )

    def _heads(self, head: str, labels: int, norm: NormSpec) -> tuple[HeadSpec, ...]:
        dense = DenseSpec(self.classifier_activation, self.classifier_bias, norm)
        drop = self.classifier_dropout
        out_bias: Literal["trained", "none"] = "trained" if self.output_bias else "none"
        known = {
            "masked": (HeadSpec("masked", self.vocabulary, dense=dense, bias=out_bias, tied=self.tied),),
            "sequence": (HeadSpec("sequence", labels, self.classifier_pooling, dense, dropout=drop),),
            "token": (HeadSpec("token", labels, dense=dense, dropout=drop),),
            "span": (HeadSpec("span", 2, dense=dense, dropout=drop),),
            "none": (),
        }
        if head not in known:
            raise self.unknown_head(head, list(known))
        return known[head]
