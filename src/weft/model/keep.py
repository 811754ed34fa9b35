"""Hidden states and attention weights of chosen layers, on request.

    hidden, kept = network(batch, keep=Keep(hidden=(0, 2), attention=(1,)))
    kept.hidden[2]        # (T, W)
    kept.attention[1][0]  # (H, L, L): the first sequence's weights in layer 1
    q, k, v = network(batch, keep=Keep(heads=(1,)))[1].heads[1]  # (T, H, D) each

Gradients flow through everything that is kept. Layers that keep no attention weights run their usual kernels. Results
are returned, not stored on the side, so that wrappers of modules (DDP, FSDP) see them among the outputs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Optional

from torch import Tensor

MapKind = Literal["attention", "scores", "cross", "heads"]
Maps = dict[MapKind, list[Tensor]]  # of one layer: (H, queries, keys) per sequence; of heads: three of (T, H, D)


@dataclass(frozen=True)
class Keep:
    """What to keep, by layer, counted from 0."""

    hidden: tuple[int, ...] = ()  # 0: the input of layer 0; i: the output of layer i − 1; the last: the stack's output
    attention: tuple[int, ...] = ()  # self-attention weights, before dropout
    scores: tuple[int, ...] = ()  # self-attention scores before the softmax: scaled, biased, −inf where masked
    cross: tuple[int, ...] = ()  # cross-attention weights, before dropout
    heads: tuple[int, ...] = ()  # self-attention's queries, keys and values, before norms and rotation
    source: Optional["Keep"] = None  # of the encoder, where an encoder–decoder reads a target

    def maps(self, layer: int) -> Maps:
        """Empty lists for the attention maps that are kept of this layer."""
        wanted: dict[MapKind, tuple[int, ...]] = {
            "attention": self.attention,
            "scores": self.scores,
            "cross": self.cross,
            "heads": self.heads,
        }
        return {kind: [] for kind, layers in wanted.items() if layer in layers}

    def check(self, layers: int, *, cross: bool) -> None:
        """Raises ValueError if a stack of so many layers lacks what is asked for."""
        _check("hidden state", self.hidden, layers + 1)
        for kind in (self.attention, self.scores, self.cross, self.heads):
            _check("layer", kind, layers)
        if self.cross and not cross:
            raise ValueError("this stack has no cross-attention to keep")


class Kept(NamedTuple):
    hidden: dict[int, Tensor]  # (T, W)
    attention: dict[int, list[Tensor]]  # per sequence (H, L, L)
    scores: dict[int, list[Tensor]]
    cross: dict[int, list[Tensor]]  # per sequence (H, target length, source length)
    heads: dict[int, list[Tensor]]  # queries, keys, values: (T, H, D), keys and values with their own number of heads
    source: Optional["Kept"] = None


def _check(what: str, numbers: Iterable[int], count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise ValueError(f"there is no {what} {number}: they are counted from 0 to {count - 1}")
