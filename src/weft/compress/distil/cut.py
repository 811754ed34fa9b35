"""The student's first weights: those of the teacher, in fewer layers and fewer dimensions.

The dimensions of the hidden state are chosen once and cut from every matrix that reads or writes it. In each block the
best inner units are kept, the best heads as wholes, and inside the heads the best dimensions, if they are narrower.
Where the two differ in kind (another order of norms, gated or not), the student keeps fresh weights.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft.compress.distil.importance import Importance
from weft.model.attention import AttentionSpec
from weft.model.block import BlockSpec
from weft.model.network import Architecture, Network
from weft.model.positions import Learned, Relative, Rotary
from weft.model.quantized import QUANTIZED

_BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)")


@dataclass(frozen=True)
class HeadCut:
    """Rows of the matrices for queries, keys and values, and columns of the output matrix, that are kept."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    heads: Tensor
    dims: Tensor | None  # inside every head, if all heads keep the same
    scale: float  # of the queries: fewer dimensions are divided by a smaller √D


@dataclass(frozen=True)
class CutResult:
    hidden: list[int] | None  # the teacher's dimension of each of the student's; None: not cut from the teacher
    notes: list[str]


@torch.no_grad()
def cut_from_teacher(
    student: Network, teacher: Network, sources: dict[str, tuple[int, ...]], importance: Importance | None
) -> CutResult:
    """Overwrite the student's fresh weights. `importance` is needed if anything but the layers differs."""
    ours, theirs = student.architecture, teacher.architecture
    if ours.width > theirs.width:
        return CutResult(None, ["The student is wider than the teacher: it starts from fresh weights."])
    hidden = _largest(importance.hidden() if importance else None, ours.width, theirs.width)
    cutter = _Cutter(ours, theirs, dense_state(teacher), hidden, importance, sources)
    state, kept = student.state_dict(), []
    for name, fresh in state.items():
        found = cutter.cut(name)
        if found is not None and found.shape == fresh.shape:
            state[name] = found.to(fresh.dtype)
            kept.append(name)
    student.load_state_dict(state)
    missing = sorted({_part(name) for name in state if name not in kept})
    notes = [f"Not taken from the teacher, whose parts differ: {', '.join(missing)}."] if missing else []
    return CutResult(hidden.tolist(), notes)


def dense_state(network: Network) -> dict[str, Tensor]:
    """The weights by the names of a plain network, also of a quantized one."""
    state = dict(network.state_dict())
    for name, module in network.named_modules():
        if isinstance(module, QUANTIZED):
            state[f"{name}.weight"] = module.weight
    return state


def needs_importance(student: Architecture, teacher: Architecture) -> bool:
    """Whether more is cut than layers."""
    pairs = ((student.encoder, teacher.encoder), (student.decoder, teacher.decoder))
    stacks = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    return student.width != teacher.width or any(
        _sizes(ours.blocks[0]) != _sizes(theirs.blocks[0]) for ours, theirs in stacks
    )


def _sizes(block: BlockSpec) -> tuple[int, ...]:
    attention = block.attention
    return attention.heads, attention.head_width, attention.key_value_heads, block.feedforward.inner


def _part(name: str) -> str:
    found = _BLOCK.match(name)
    return f"{found[1]} blocks" if found else name.rpartition(".")[0]


def _largest(scores: Tensor | None, count: int, total: int) -> Tensor:
    """Indices of the largest, rising. All, if none is left out."""
    if count == total:
        return torch.arange(total)
    assert scores is not None
    return scores.topk(count).indices.sort().values.cpu()


@dataclass
class _Cutter:
    ours: Architecture
    theirs: Architecture
    state: dict[str, Tensor]  # the teacher's weights
    hidden: Tensor  # dimensions of the hidden state that stay
    importance: Importance | None
    sources: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        self.heads: dict[str, HeadCut | None] = {}  # by the name of the teacher's attention

    def cut(self, name: str) -> Tensor | None:
        """The student's tensor of this name; None if the teacher has nothing like it."""
        if found := _BLOCK.match(name):
            return self._of_block(found[1], int(found[2]), found[3])
        if name.startswith("heads."):
            return self._of_head(name)
        if name.startswith(("encoder.relative", "decoder.relative")):
            return self._of_relative(name)
        if name not in self.state:
            return None
        tensor = self.state[name]
        if name.endswith("embed.positions.weight"):
            tensor = self._positions(name, tensor)
        return tensor[..., self.hidden]

    def _positions(self, name: str, table: Tensor) -> Tensor:
        """The same positions with the student's offset. A student without segments has the first one's vector here."""
        ours, theirs = self.ours.embedding, self.theirs.embedding
        assert isinstance(ours.positions, Learned) and isinstance(theirs.positions, Learned)
        found = torch.zeros(ours.positions.size, table.shape[1])
        rows = min(ours.positions.size - ours.positions.offset, theirs.positions.size - theirs.positions.offset)
        found[ours.positions.offset :][:rows] = table[theirs.positions.offset :][:rows]
        if theirs.segments and not ours.segments:
            found += self.state[name.replace("positions", "segments")][0]
        return found

    def _of_head(self, name: str) -> Tensor | None:
        kind, part = name.split(".")[1], name.split(".")[2]
        ours, theirs = self.ours.head(kind), self.theirs.head(kind)
        if theirs is None or ours is None or name not in self.state:
            return None
        if ours.pool != theirs.pool or (ours.dense and ours.dense.activation) != (
            theirs.dense and theirs.dense.activation
        ):
            return None
        tensor = self.state[name]
        if part == "out":
            return tensor[:, self.hidden] if tensor.dim() == 2 else tensor
        return tensor[self.hidden][:, self.hidden] if tensor.dim() == 2 else tensor[self.hidden]

    def _of_relative(self, name: str) -> Tensor | None:
        stack = name.partition(".")[0]
        cut = self._head_cut(stack, 0, "attention")
        return None if cut is None or name not in self.state else self.state[name][:, cut.heads]

    def _of_block(self, stack: str, layer: int, rest: str) -> Tensor | None:
        ours, theirs = self._specs(stack)
        if ours is None or theirs is None or not _are_alike(ours, theirs) or layer >= len(self.sources[stack]):
            return None
        source = self.sources[stack][layer]
        tensor = self.state.get(f"{stack}.blocks.{source}.{rest}")
        if tensor is None:
            return None
        module, _, kind = rest.partition(".")
        if module.endswith("_norm"):
            return tensor[self.hidden]
        if module == "feedforward":
            return self._of_feedforward(tensor, f"{stack}.blocks.{source}", kind, ours, theirs)
        cut = self._head_cut(stack, source, module)
        return None if cut is None else self._of_attention(tensor, kind, cut, theirs.attention)

    def _specs(self, stack: str) -> tuple[BlockSpec | None, BlockSpec | None]:
        found = [getattr(architecture, stack) for architecture in (self.ours, self.theirs)]
        ours, theirs = (None if one is None else one.blocks[0] for one in found)
        return ours, theirs

    def _of_feedforward(self, tensor: Tensor, block: str, kind: str, ours: BlockSpec, theirs: BlockSpec) -> Tensor:
        read = None if self.importance is None else self.importance.read[f"{block}.feedforward.down"]
        total = theirs.feedforward.inner
        if ours.feedforward.inner > total:
            return tensor.new_zeros(0)  # of another shape: stays fresh
        inner = _largest(read, ours.feedforward.inner, total)
        match kind:
            case "up.weight" | "up.bias":
                rows = torch.cat([inner, inner + total]) if theirs.feedforward.gated else inner
                return tensor[rows][..., self.hidden] if tensor.dim() == 2 else tensor[rows]
            case "down.weight":
                return tensor[self.hidden][:, inner]
        return tensor[self.hidden]

    def _of_attention(self, tensor: Tensor, kind: str, cut: HeadCut, spec: AttentionSpec) -> Tensor | None:
        q, k = spec.heads * spec.head_width, spec.key_value_heads * spec.head_width
        rows: Tensor
        match kind:
            case "out.weight":
                return tensor[self.hidden][:, cut.out]
            case "out.bias":
                return tensor[self.hidden]
            case "query_norm.weight" | "key_norm.weight":
                return tensor if cut.dims is None else tensor[cut.dims]
            case "qkv.weight" | "qkv.bias":
                rows = torch.cat([cut.q, q + cut.k, q + k + cut.v])
            case "query.weight" | "query.bias":
                rows = cut.q
            case "key_value.weight" | "key_value.bias":
                rows = torch.cat([cut.k, q + cut.v])
            case _:
                return None
        found = tensor[rows].clone()
        if not kind.startswith("key_value"):
            found[: len(cut.q)] *= cut.scale
        return found[:, self.hidden] if found.dim() == 2 else found

    def _head_cut(self, stack: str, source: int, module: str) -> HeadCut | None:
        name = f"{stack}.blocks.{source}.{module}"
        if name not in self.heads:
            ours, theirs = self._specs(stack)
            assert ours is not None and theirs is not None
            new, old = ours.attention, theirs.attention
            if module == "cross":  # has no grouped heads
                new, old = (replace(spec, key_value_heads=spec.heads) for spec in (new, old))
            positions = self.theirs.embedding.positions
            is_shared = isinstance(positions, Relative)
            layers = self.sources[stack] if is_shared else (source,)
            self.heads[name] = _cut_heads(
                new,
                old,
                [self._magnitudes(f"{stack}.blocks.{layer}.{module}", old, module) for layer in layers],
                None if not is_shared else layers.index(source) if source in layers else 0,
                in_pairs=isinstance(positions, Rotary) and module == "attention",
            )
        return self.heads[name]

    def _magnitudes(self, name: str, spec: AttentionSpec, module: str) -> tuple[Tensor, Tensor, Tensor]:
        """Of queries (H, D), keys (KV, D) and what the output matrix reads (H, D)."""
        heads, groups, size = spec.heads, spec.key_value_heads, spec.head_width
        if self.importance is None:
            return torch.ones(heads, size), torch.ones(groups, size), torch.ones(heads, size)
        out = self.importance.read[f"{name}.out"].view(heads, size)
        if module == "cross":
            key = self.importance.given[f"{name}.key_value"][: heads * size].view(heads, size)
            return self.importance.given[f"{name}.query"].view(heads, size), key, out
        given = self.importance.given[f"{name}.qkv"].view(-1, size)
        return given[:heads], given[heads : heads + groups], out


def _cut_heads(
    new: AttentionSpec,
    old: AttentionSpec,
    layers: Sequence[tuple[Tensor, Tensor, Tensor]],
    own: int | None,
    *,
    in_pairs: bool,
) -> HeadCut | None:
    """`layers`: magnitudes of the layers that share their choice of heads; `own`: which of them is cut here. None if
    the student's heads are more or wider.
    """
    group, new_group = old.heads // old.key_value_heads, new.heads // new.key_value_heads
    if new.key_value_heads > old.key_value_heads or new_group > group or new.head_width > old.head_width:
        return None
    of_heads = torch.stack([out.sum(1) / out.sum() for _, _, out in layers]).mean(0).view(-1, group)
    groups = _largest(of_heads.sum(1), new.key_value_heads, old.key_value_heads)
    heads = torch.cat([one * group + _largest(of_heads[one], new_group, group) for one in groups])
    query, key, out = layers[own or 0]
    size, width = old.head_width, new.head_width
    matching = torch.stack([query[one] * key[one // group] for one in heads])
    reading = torch.stack([out[one] for one in heads])
    per_group = matching.view(len(groups), new_group, size).sum(1)
    dims: Tensor | None = None
    if in_pairs or old.head_norm is not None:
        total = (matching / matching.sum(1, keepdim=True)).sum(0)
        dims = _pairs(total, width) if in_pairs else _largest(total, width, size)
    match_dims = [dims if dims is not None else _largest(row, width, size) for row in per_group]
    value_dims = [_largest(row, width, size) for row in reading.view(len(groups), new_group, size).sum(1)]
    of_group = [int(one) for one in range(len(groups)) for _ in range(new_group)]
    return HeadCut(
        q=torch.cat([head * size + match_dims[one] for head, one in zip(heads, of_group, strict=True)]),
        k=torch.cat([one * size + match_dims[place] for place, one in enumerate(groups)]),
        v=torch.cat([one * size + value_dims[place] for place, one in enumerate(groups)]),
        out=torch.cat([head * size + value_dims[one] for head, one in zip(heads, of_group, strict=True)]),
        heads=heads,
        dims=dims,
        scale=(width / size) ** 0.5 if old.scaled and old.head_norm is None else 1.0,
    )


def _pairs(scores: Tensor, width: int) -> Tensor:
    """Rotary positions rotate dimension i with i + D / 2: both are kept, or none."""
    half = len(scores) // 2
    kept = _largest(scores.view(2, half).sum(0), width // 2, half)
    return torch.cat([kept, kept + half])


def _are_alike(ours: BlockSpec, theirs: BlockSpec) -> bool:
    """Whether they differ in sizes and dropout only."""
    return (ours.order, ours.norm.kind, ours.feedforward.gated, ours.feedforward.activation) == (
        theirs.order,
        theirs.norm.kind,
        theirs.feedforward.gated,
        theirs.feedforward.activation,
    ) and (ours.attention.scaled, ours.attention.head_norm is None) == (
        theirs.attention.scaled,
        theirs.attention.head_norm is None,
    )
