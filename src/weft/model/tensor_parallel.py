"""Tensor parallel training: a network cut among peers (Shoeybi et al. 2019, section 3).

With N peers each has H / N heads of every attention, 1 / N of every feedforward's inner width, and V / N rows of the
token embedding and of the output matrix. That is a narrower network of the same modules, so `Network` builds it. Only
the modules at the borders change their class:

    entrance    forward: nothing                        backward: gradients of all peers are added
    exit        forward: outputs of all peers are added backward: nothing

Joined matrices (query, key and value; gate and up) are cut part by part: each peer has whole heads. Norms, positions
and the heads' dense layers are whole in every peer, which computes them again.

Plain collectives, not DTensor: the parts of joined matrices are no even shards, and the C kernels take addresses of
plain tensors.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from weft.errors import RecipeError
from weft.model.attention import Attention, CrossAttention, LayerPast, View
from weft.model.block import BlockSpec
from weft.model.embeddings import Embeddings
from weft.model.feedforward import FeedForward
from weft.model.heads import Head, HeadSpec
from weft.model.keep import Keep, Kept, Maps
from weft.model.network import Architecture, Network, outline
from weft.model.packed import Packed
from weft.model.peers import Peers, TensorParallel, WeightCut, begin_and_end, enter, own_randomness, sum_over
from weft.model.positions import RelativeBias
from weft.model.sliced_loss import VocabularySlice
from weft.model.stack import Past, Stack, StackSpec

_FAMILIES = ("bert", "roberta", "distilbert", "gpt2", "t5", "llama", "qwen3")
_VOCABULARY_HEADS = ("masked", "causal", "seq2seq")


def check_can_be_cut(architecture: Architecture, world: int) -> None:
    """Raises RecipeError if so many peers cannot share the network."""
    if architecture.family not in _FAMILIES:
        raise RecipeError(
            f"processes.tensor works for {', '.join(_FAMILIES)}, not for {architecture.family}. Leave it out."
        )
    for stack in (architecture.encoder, architecture.decoder):
        for block in () if stack is None else stack.blocks:
            counts = {
                "heads": block.attention.heads,
                "key_value_heads": block.attention.key_value_heads,
                "inner": block.feedforward.inner,
            }
            for name, count in counts.items():
                if count % world:
                    raise RecipeError(
                        f"processes.tensor is {world}, but model.{name} is {count}: so many processes cannot share "
                        "them evenly. Change one of the two."
                    )


def network_of_peer(network: Network, peers: Peers) -> Network:
    """What this peer has of a network, with its weights or, of an outline, as an outline."""
    architecture = network.architecture
    check_can_be_cut(architecture, peers.world)
    part = outline(_part_of(architecture, peers))
    part.architecture = architecture
    cuts = _cuts(part, architecture, peers)
    part.tensor_parallel = TensorParallel(peers, cuts, _partial(part))
    _change_classes(part, peers)
    whole = dict(network.named_parameters(remove_duplicate=False))
    for name, weight in part.named_parameters():
        weight.requires_grad_(whole[name].requires_grad)
    if not next(network.parameters()).is_meta:
        cut = {weight: _sliced(weight, cuts.get(name), peers) for name, weight in network.named_parameters()}
        part.load_state_dict({name: cut[weight] for name, weight in whole.items()}, assign=True)  # tied ones stay tied
    return part.train(network.training)


def _sliced(weight: nn.Parameter, cut: WeightCut | None, peers: Peers) -> nn.Parameter:
    whole = weight.detach()
    return nn.Parameter(whole if cut is None else cut.part(whole.shape, peers).taken_from(whole), weight.requires_grad)


def _part_of(architecture: Architecture, peers: Peers) -> Architecture:
    """The narrower architecture of one peer."""
    tokens = len(begin_and_end(architecture.vocabulary, peers.rank, peers.world))

    def of_block(block: BlockSpec) -> BlockSpec:
        attention, feedforward, world = block.attention, block.feedforward, peers.world
        heads, groups = attention.heads // world, attention.key_value_heads // world
        return replace(
            block,
            attention=replace(attention, heads=heads, key_value_heads=groups),
            feedforward=replace(feedforward, inner=feedforward.inner // world),
        )

    def of_stack(stack: StackSpec | None) -> StackSpec | None:
        return None if stack is None else replace(stack, blocks=tuple(map(of_block, stack.blocks)))

    def of_head(head: HeadSpec) -> HeadSpec:
        return replace(head, outputs=tokens) if head.kind in _VOCABULARY_HEADS else head

    return replace(
        architecture,
        embedding=replace(architecture.embedding, vocabulary=tokens),
        encoder=of_stack(architecture.encoder),
        decoder=of_stack(architecture.decoder),
        heads=tuple(map(of_head, architecture.heads)),
    )


def _cuts(part: Network, architecture: Architecture, peers: Peers) -> dict[str, WeightCut]:
    """How each weight of the whole network is cut. The modules of `part` know one peer's counts."""
    found: dict[str, WeightCut] = {}

    def note(path: str, layer: nn.Module | None, dimension: int, *parts: int) -> None:
        found[f"{path}.weight"] = WeightCut(dimension, parts)
        if dimension == 0 and getattr(layer, "bias", None) is not None:
            found[f"{path}.bias"] = WeightCut(0, parts)

    for path, module in part.named_modules():
        match module:
            case Attention() | CrossAttention():
                width = module.spec.head_width * peers.world
                queries, keys = module.spec.heads * width, module.spec.key_value_heads * width
                note(f"{path}.out", module.out, 1, queries)
                if isinstance(module, Attention):
                    note(f"{path}.qkv", module.qkv, 0, queries, keys, keys)
                else:
                    note(f"{path}.query", module.query, 0, queries)
                    note(f"{path}.key_value", module.key_value, 0, queries, queries)
            case FeedForward():
                inner = module.spec.inner * peers.world
                note(f"{path}.up", module.up, 0, *[inner] * (2 if module.spec.gated else 1))
                note(f"{path}.down", module.down, 1, inner)
            case Embeddings():
                note(f"{path}.tokens", module.tokens, 0, architecture.vocabulary)
            case Head() if module.spec.kind in _VOCABULARY_HEADS:
                note(f"{path}.out", module.out, 0, architecture.vocabulary)
            case RelativeBias():
                note(f"{path}.table", module.table, 1, module.table.weight.shape[1] * peers.world)
    return found


def _partial(part: Network) -> frozenset[str]:
    return frozenset(
        f"{path}.{norm}.{name}"
        for path, module in part.named_modules()
        if isinstance(module, Attention)
        for norm in ("query_norm", "key_norm")
        if getattr(module, norm) is not None
        for name, _ in getattr(module, norm).named_parameters()
    )


def _change_classes(part: Network, peers: Peers) -> None:
    """Only behaviour changes, as with `fully_shard`: modules keep their weights and their names."""
    tokens = begin_and_end(part.architecture.vocabulary, peers.rank, peers.world)
    for module in list(part.modules()):
        match module:
            case Attention():
                _become(PeerAttention, module, peers)
                _become(SummedLinear, module.out, peers)
            case CrossAttention():
                _become(PeerCrossAttention, module, peers)
                _become(SummedLinear, module.out, peers)
            case FeedForward():
                _become(PeerFeedForward, module, peers)
                _become(SummedLinear, module.down, peers)
            case Stack() if module.spec.cross:
                _become(PeerStack, module, peers)
            case Embeddings():
                _become(PeerEmbedding, module.tokens, peers).rows = tokens
            case Head() if module.spec.kind in _VOCABULARY_HEADS:
                out = _become(VocabularySlice, module.out, peers)
                out.tokens, out.vocabulary = tokens, part.architecture.vocabulary


def _become(kind: type[Any], module: Any, peers: Peers) -> Any:
    module.__class__ = kind
    module.peers = peers
    return module


class PeerAttention(Attention):
    peers: Peers

    def forward(
        self, x_TW: Tensor, batch: Packed, view: View, past: LayerPast | None = None, maps: Maps | None = None
    ) -> Tensor:
        with _own_dropout(self, x_TW):
            return super().forward(enter(x_TW, self.peers), batch, view, past, maps)


class PeerCrossAttention(CrossAttention):
    peers: Peers

    def forward(
        self,
        x_TW: Tensor,
        batch: Packed,
        memory_TW: Tensor | None,
        source: Packed | None,
        past: LayerPast | None = None,
        maps: Maps | None = None,
    ) -> Tensor:
        with _own_dropout(self, x_TW):
            return super().forward(enter(x_TW, self.peers), batch, memory_TW, source, past, maps)


class PeerFeedForward(FeedForward):
    peers: Peers

    def forward(self, x_TW: Tensor) -> Tensor:
        with _own_dropout(self, x_TW):
            return super().forward(enter(x_TW, self.peers))


def _own_dropout(module: Any, x: Tensor) -> AbstractContextManager[None]:
    """Each peer drops other elements of what only it has."""
    if module.training and module.spec.dropout:
        return own_randomness(module.peers, x.device)
    return nullcontext()


class PeerStack(Stack):
    """A decoder with cross-attention. All its layers read the encoder's output, whose gradients are added once."""

    peers: Peers

    def forward(
        self,
        x_TW: Tensor,
        batch: Packed,
        memory: Tensor | None = None,
        source: Packed | None = None,
        past: Past | None = None,
        keep: Keep | None = None,
    ) -> Tensor | tuple[Tensor, Kept]:
        return super().forward(x_TW, batch, None if memory is None else enter(memory, self.peers), source, past, keep)


class SummedLinear(nn.Linear):
    """Each peer has some columns of the matrix, and all have the bias."""

    peers: Peers

    def forward(self, x: Tensor) -> Tensor:
        y = sum_over(F.linear(x, self.weight), self.peers)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class PeerEmbedding(nn.Embedding):
    """The vectors of one peer's tokens. The sum over peers is exact: one of them has the token."""

    peers: Peers
    rows: range

    def forward(self, tokens: Tensor) -> Tensor:
        here = (tokens >= self.rows.start) & (tokens < self.rows.stop)
        place = (tokens - self.rows.start).clamp(0, len(self.rows) - 1)
        own = F.embedding(place, self.weight).masked_fill(~here[:, None], 0.0)
        return sum_over(own, self.peers)
