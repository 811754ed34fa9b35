"""Llama (Touvron et al. 2023): a pre-norm decoder with RMSNorm, rotary positions, SwiGLU, no biases, and grouped-query
attention. Qwen3 (Yang et al. 2025) also normalises queries and keys per head.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.errors import RecipeError
from weft.model.attention import AttentionSpec
from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, head_width
from weft.model.families.gpt2 import causal_heads
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import LinearScaling, Llama3Scaling, Rotary
from weft.model.stack import StackSpec

_LLAMA3 = {"vocabulary": 128_256, "theta": 500_000.0, "positions": 8192, "epsilon": 1e-5, "key_value_heads": 8}


@dataclass(frozen=True)
class Llama(Family):
    name: ClassVar[str] = "llama"
    default_head: ClassVar[str] = "causal"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "7b": {"layers": 32, "width": 4096, "heads": 32, "inner": 11_008},
        "13b": {"layers": 40, "width": 5120, "heads": 40, "inner": 13_824},
        "33b": {"layers": 60, "width": 6656, "heads": 52, "inner": 17_920},
        "65b": {"layers": 80, "width": 8192, "heads": 64, "inner": 22_016},
        "3-8b": {"layers": 32, "width": 4096, "heads": 32, "inner": 14_336, **_LLAMA3},
        "3-70b": {"layers": 80, "width": 8192, "heads": 64, "inner": 28_672, **_LLAMA3},
    }

    vocabulary: int = 32_000
    layers: int = 32
    width: int = 4096
    heads: int = 32
    key_value_heads: int | None = None  # as `heads`
    head_width: int | None = None  # width / heads
    inner: int | None = None  # 8/3 × width rounded up to a multiple of 32: as many weights as ungated
    positions: int = 2048
    theta: float = 10_000.0
    scaling: LinearScaling | Llama3Scaling | None = None
    activation: Activation = "silu"
    epsilon: float = 1e-6
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.1
    attention_bias: bool = False
    feedforward_bias: bool = False
    query_key_norm: bool = False
    tied: bool = False
    init_std: float = 0.02

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        norm = NormSpec("rms", self.epsilon, bias=False)
        block = BlockSpec(
            self._attention(norm),
            FeedForwardSpec(self._inner(), self.activation, gated=True, bias=self.feedforward_bias),
            norm,
            order="pre",
            attention_dropout=self.dropout,
            feedforward_dropout=self.dropout,
        )
        return Architecture(
            self.name,
            EmbeddingSpec(self.vocabulary, self.width, Rotary(self.positions, self.theta, self.scaling)),
            decoder=StackSpec((block,) * self.layers, causal=True, final_norm=True),
            heads=causal_heads(self, head or self.default_head, labels, self.tied, self.classifier_dropout),
            init=InitSpec(std=self.init_std, depth_scaled=True),
        )

    def _attention(self, norm: NormSpec) -> AttentionSpec:
        size = self.head_width or head_width(self.name, self.width, self.heads)
        groups = self.key_value_heads or self.heads
        if self.heads % groups:
            raise RecipeError(f"{self.name}: {self.heads} heads cannot share {groups} key/value heads evenly.")
        if size % 2:
            raise RecipeError(f"{self.name}: rotary positions need an even head width, not {size}.")
        return AttentionSpec(
            self.heads,
            size,
            groups,
            bias=self.attention_bias,
            out_bias=self.attention_bias,
            head_norm=norm if self.query_key_norm else None,
            dropout=self.attention_dropout,
        )

    def _inner(self) -> int:
        return self.inner or -(-8 * self.width // 3 // 32) * 32


@dataclass(frozen=True)
class Qwen3(Llama):
    name: ClassVar[str] = "qwen3"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "0.6b": {"layers": 28, "width": 1024, "heads": 16, "inner": 3072, "tied": True},
        "1.7b": {"layers": 28, "width": 2048, "heads": 16, "inner": 6144, "tied": True},
        "4b": {"layers": 36, "width": 2560, "heads": 32, "inner": 9728, "tied": True},
        "8b": {"layers": 36, "width": 4096, "heads": 32, "inner": 12_288},
        "14b": {"layers": 40, "width": 5120, "heads": 40, "inner": 17_408},
        "32b": {"layers": 64, "width": 5120, "heads": 64, "inner": 25_600},
    }
    for _size in sizes.values():
        _size |= {"key_value_heads": 8, "head_width": 128}
    del _size

    vocabulary: int = 151_936
    positions: int = 40_960
    theta: float = 1_000_000.0
    query_key_norm: bool = True
