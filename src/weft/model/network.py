"""A whole model: embeddings, stacks, heads.

    BERT      embed -> encoder -> heads              GPT, Llama   embed -> decoder -> heads
    T5        embed -> encoder ─┐                    LSTM         embed -> recurrent -> heads
              embed -> decoder <┘-> heads

`Architecture` holds all settings; `Network` is the module built from them.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.heads import Head, HeadSpec
from weft.model.initialize import InitSpec, initialize
from weft.model.keep import Keep, Kept
from weft.model.packed import Packed
from weft.model.peers import TensorParallel
from weft.model.quantized import QUANTIZED
from weft.model.recurrent import Recurrent, RecurrentPast, RecurrentSpec
from weft.model.stack import Past, Stack, StackSpec


@dataclass(frozen=True)
class Architecture:
    family: str
    embedding: EmbeddingSpec
    encoder: StackSpec | None = None
    decoder: StackSpec | None = None
    recurrent: RecurrentSpec | None = None
    heads: tuple[HeadSpec, ...] = ()
    shared_embedding: bool = True  # encoder and decoder share the token embedding
    init: InitSpec = field(default_factory=InitSpec)

    @property
    def width(self) -> int:
        return self.embedding.width

    @property
    def vocabulary(self) -> int:
        return self.embedding.vocabulary

    @property
    def layers(self) -> int:
        return sum(part.layers for part in (self.encoder, self.decoder, self.recurrent) if part is not None)

    @property
    def is_encoder_decoder(self) -> bool:
        return self.encoder is not None and self.decoder is not None

    def head(self, kind: str) -> HeadSpec | None:
        return next((head for head in self.heads if head.kind == kind), None)


class FastPath(Protocol):
    """Another way to compute what a network computes, for inference. See `inference.compiled_forward`."""

    def stack(
        self, name: Literal["encoder", "decoder"], batch: Packed, memory: Tensor | None, source: Packed | None
    ) -> Tensor | None:
        """Hidden states (T, W) of a batch; None where the modules must compute them."""


class Network(nn.Module):
    fast: FastPath | None = None
    tensor_parallel: TensorParallel | None = None  # this is one peer's part; `architecture` is that of the whole

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.width = width = architecture.width
        positions = architecture.embedding.positions
        separate = architecture.is_encoder_decoder and not architecture.shared_embedding
        self.embed = Embeddings(architecture.embedding)
        self.decoder_embed = Embeddings(architecture.embedding) if separate else None
        self.encoder = Stack(architecture.encoder, width, positions) if architecture.encoder else None
        self.decoder = Stack(architecture.decoder, width, positions) if architecture.decoder else None
        self.recurrent = Recurrent(architecture.recurrent, width) if architecture.recurrent else None
        self.heads = nn.ModuleDict({spec.kind: Head(spec, width) for spec in architecture.heads})
        for head in self.heads.values():
            if head.spec.tied:
                head.out.weight = (self.decoder_embed or self.embed).tokens.weight

    def forward(
        self, batch: Packed, target: Packed | None = None, keep: Keep | None = None
    ) -> Tensor | tuple[Tensor, Kept]:
        """Hidden states (T, W) of `batch`; of `target`, given `batch` as its source, if there is one. With `keep`, also
        hidden states and attention weights of single layers.
        """
        if keep is not None:
            return self._forward_keeping(batch, target, keep)
        if target is not None:
            return self.decode(target, self.encode(batch), batch)
        if self.encoder is not None:
            return self.encode(batch)
        if self.recurrent is not None:
            return self.recurrent(self.embed(batch), batch)
        fast = None if self.fast is None else self.fast.stack("decoder", batch, None, None)
        return self.decoder(self.embed(batch), batch) if fast is None else fast

    def _forward_keeping(self, batch: Packed, target: Packed | None, keep: Keep) -> tuple[Tensor, Kept]:
        if self.recurrent is not None:
            raise ValueError("an LSTM keeps neither the hidden states of its layers nor attention weights")
        if target is None:
            return (self.decoder if self.encoder is None else self.encoder)(self.embed(batch), batch, keep=keep)
        memory, of_source = self.encoder(self.embed(batch), batch, keep=keep.source or Keep())
        x = (self.decoder_embed or self.embed)(target)
        hidden, kept = self.decoder(x, target, memory, batch, keep=keep)
        return hidden, kept._replace(source=of_source)

    def head(self, kind: str) -> Head:
        head = self.heads[kind]
        assert isinstance(head, Head)
        return head

    def encode(self, source: Packed) -> Tensor:
        fast = None if self.fast is None else self.fast.stack("encoder", source, None, None)
        return self.encoder(self.embed(source), source) if fast is None else fast

    def decode(self, target: Packed, memory: Tensor, source: Packed) -> Tensor:
        fast = None if self.fast is None else self.fast.stack("decoder", target, memory, source)
        if fast is not None:
            return fast
        return self.decoder((self.decoder_embed or self.embed)(target), target, memory, source)

    def forward_with_past(self, batch: Packed, past: Past | RecurrentPast) -> Tensor:
        """Hidden states (T, W) of tokens that follow those in `past`, and add them to `past`. Of an encoder–decoder:
        the decoder's.
        """
        x = (self.decoder_embed or self.embed)(batch)
        return self.decoder(x, batch, past=past) if self.recurrent is None else self.recurrent(x, batch, past)


def create_network(architecture: Architecture, seed: int = 0) -> Network:
    """A network with initial weights."""
    network = Network(architecture)
    initialize(network, architecture.init, layers=architecture.layers, seed=seed)
    return network


def outline(architecture: Architecture) -> Network:
    """The network on the meta device: names and shapes of any size, without memory."""
    with torch.device("meta"):
        return Network(architecture)


def count_parameters(network: nn.Module) -> int:
    """Tied parameters count once. Quantized weights count like others, their scales do not. Of a tensor parallel peer's
    part: those of the whole network.
    """
    if isinstance(network, Network) and network.tensor_parallel is not None:
        network = outline(network.architecture)
    quantized = {id(part.values): part.values for part in network.modules() if isinstance(part, QUANTIZED)}
    return sum(weights.numel() for weights in (*network.parameters(), *quantized.values()))
