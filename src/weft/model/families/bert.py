"""Bidirectional encoders trained by masked language modelling.

BERT (Devlin et al. 2019): post-norm encoder, learned positions, two segments; masked LM + next sentence.
RoBERTa (Liu et al. 2019): the same network, positions from 2 on, no next-sentence head.
DistilBERT (Sanh et al. 2019): half the layers, no segments, no pooler.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from weft.errors import RecipeError
from weft.model.block import BlockSpec
from weft.model.embeddings import EmbeddingSpec
from weft.model.families.family import Family, head_width, plain_attention, token_head
from weft.model.feedforward import Activation, FeedForwardSpec
from weft.model.heads import DenseSpec, HeadSpec
from weft.model.initialize import InitSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Learned
from weft.model.stack import StackSpec


@dataclass(frozen=True)
class Bert(Family):
    name: ClassVar[str] = "bert"
    default_head: ClassVar[str] = "masked"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        # Turc et al. 2019, "Well-read students learn better"
        "tiny": {"layers": 2, "width": 128, "heads": 2},
        "mini": {"layers": 4, "width": 256, "heads": 4},
        "small": {"layers": 4, "width": 512, "heads": 8},
        "medium": {"layers": 8, "width": 512, "heads": 8},
        "base": {"layers": 12, "width": 768, "heads": 12},
        "large": {"layers": 24, "width": 1024, "heads": 16},
        # Jiao et al. 2020, TinyBERT; Wang et al. 2020, MiniLM
        "tinybert-4": {"layers": 4, "width": 312, "heads": 12, "inner": 1200},
        "tinybert-6": {"layers": 6, "width": 768, "heads": 12},
        "minilm-6": {"layers": 6, "width": 384, "heads": 12},
    }

    vocabulary: int = 30_522
    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int | None = None  # 4 × width
    positions: int = 512
    segments: int = 2
    activation: Activation = "gelu"
    epsilon: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None  # as `dropout`
    tied: bool = True
    init_std: float = 0.02
    head_width: int | None = None  # width / heads

    def architecture(self, head: str | None = None, labels: int = 2) -> Architecture:
        return Architecture(
            self.name,
            EmbeddingSpec(
                self.vocabulary,
                self.width,
                self._position_table(),
                segments=self.segments,
                norm=self._norm(),
                dropout=self.dropout,
            ),
            encoder=StackSpec((self._block(),) * self.layers),
            heads=self._heads(head or self.default_head, labels),
            init=InitSpec(std=self.init_std),
        )

    def _position_table(self) -> Learned:
        return Learned(self.positions)

    def _norm(self) -> NormSpec:
        return NormSpec("layer", self.epsilon)

    def _block(self) -> BlockSpec:
        size = head_width(self.name, self.width, self.heads, self.head_width)
        return BlockSpec(
            plain_attention(self.heads, size, bias=True, dropout=self.attention_dropout),
            FeedForwardSpec(self.inner or 4 * self.width, self.activation),
            self._norm(),
            order="post",
            attention_dropout=self.dropout,
            feedforward_dropout=self.dropout,
        )

    def _masked(self) -> HeadSpec:
        dense = DenseSpec(self.activation, norm=self._norm())
        return HeadSpec("masked", self.vocabulary, dense=dense, tied=self.tied)

    def _heads(self, head: str, labels: int) -> tuple[HeadSpec, ...]:
        dropout = self.dropout if self.classifier_dropout is None else self.classifier_dropout
        pooler = DenseSpec("tanh")
        next_sentence = HeadSpec("next-sentence", 2, "first", pooler)
        known = {
            "masked": (self._masked(),),
            "masked+next-sentence": (self._masked(), next_sentence),
            "next-sentence": (next_sentence,),
            "sequence": (HeadSpec("sequence", labels, "first", pooler, dropout=dropout),),
            "token": (token_head("token", labels, dropout),),
            "span": (token_head("span", labels),),
            "pooler": (HeadSpec("pooler", 0, "first", pooler),),
            "none": (),
        }
        if head not in known:
            raise self.unknown_head(head, list(known))
        return known[head]


@dataclass(frozen=True)
class Roberta(Bert):
    name: ClassVar[str] = "roberta"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "base": {"layers": 12, "width": 768, "heads": 12},
        "large": {"layers": 24, "width": 1024, "heads": 16},
    }

    vocabulary: int = 50_265
    positions: int = 514  # 512, from pad + 1 on
    segments: int = 1
    epsilon: float = 1e-5
    pad: int = 1

    def _position_table(self) -> Learned:
        if self.positions <= self.pad + 1:
            raise RecipeError(
                f"{self.name}: positions must be more than {self.pad + 1} (pad + 1), not {self.positions}."
            )
        return Learned(self.positions, offset=self.pad + 1)

    def _masked(self) -> HeadSpec:
        dense = DenseSpec("gelu", norm=self._norm())  # independent of the encoder's activation
        return HeadSpec("masked", self.vocabulary, dense=dense, tied=self.tied)

    def _heads(self, head: str, labels: int) -> tuple[HeadSpec, ...]:
        dropout = self.dropout if self.classifier_dropout is None else self.classifier_dropout
        if head == "sequence":
            return (HeadSpec("sequence", labels, "first", DenseSpec("tanh", dropout=dropout), dropout=dropout),)
        if "next-sentence" in head:
            raise self.unknown_head(head, ["masked", "sequence", "token", "span", "pooler", "none"])
        return super()._heads(head, labels)


@dataclass(frozen=True)
class DistilBert(Bert):
    name: ClassVar[str] = "distilbert"
    sizes: ClassVar[dict[str, dict[str, Any]]] = {"base": {"layers": 6, "width": 768, "heads": 12}}

    layers: int = 6
    segments: int = 0
    classifier_dropout: float | None = 0.2
    span_dropout: float = 0.1

    def _block(self) -> BlockSpec:
        return replace(super()._block(), attention_dropout=0.0)  # dropout after the feedforward only

    def _heads(self, head: str, labels: int) -> tuple[HeadSpec, ...]:
        known = {
            "masked": (self._masked(),),
            "sequence": (
                HeadSpec("sequence", labels, "first", DenseSpec("relu"), dropout=self.classifier_dropout or 0.0),
            ),
            "token": (token_head("token", labels, self.dropout),),
            "span": (HeadSpec("span", 2, dropout=self.span_dropout),),
            "none": (),
        }
        if head not in known:
            raise self.unknown_head(head, list(known))
        return known[head]
