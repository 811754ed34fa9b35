"""Which neurons and heads of a layer stay: those with the highest scores."""

import torch
from torch import Tensor

from weft.compress.prune.cut import KeptLayer, KeptParts, StackSide, stacks_of
from weft.compress.prune.fisher import PartScores
from weft.model.network import Architecture
from weft.model.positions import Relative


def best_parts(
    architecture: Architecture, scores: PartScores, layers: dict[StackSide, tuple[int, ...]], inner: int, heads: int
) -> KeptParts:
    """The given layers with their `inner` best neurons and `heads` best key/value heads each.

    Layers with a relative position bias share its columns, one per head (T5), so they keep the same heads.
    """
    shares_heads = isinstance(architecture.embedding.positions, Relative)
    found: KeptParts = {}
    for side, numbers in layers.items():
        names = [f"{side}.blocks.{number}" for number in numbers]
        together = torch.stack([_normalized(scores[f"{name}.attention"]) for name in names]).sum(0)
        found[side] = tuple(
            KeptLayer(
                number,
                best_of(scores[f"{name}.feedforward"], inner),
                best_of(together if shares_heads else scores[f"{name}.attention"], heads),
                best_of(scores[f"{name}.cross"], heads) if stacks_of(architecture)[side].cross else None,
            )
            for number, name in zip(numbers, names, strict=True)
        )
    return found


def best_heads_of_all(architecture: Architecture, scores: PartScores, share: float) -> KeptParts:
    """All neurons and the best heads of all layers together, at least one in each."""
    names = [name for name in scores if not name.endswith(".feedforward")]
    ranked = sorted(
        ((float(score), name, head) for name in names for head, score in enumerate(scores[name])), reverse=True
    )
    firsts = {(name, int(scores[name].argmax())) for name in names}
    others = [(name, head) for _, name, head in ranked if (name, head) not in firsts]
    chosen = [*firsts, *others[: max(0, round(share * len(ranked)) - len(firsts))]]
    kept = {name: torch.tensor(sorted(head for one, head in chosen if one == name)) for name in names}
    return {
        side: tuple(
            KeptLayer(
                number,
                torch.arange(block.feedforward.inner),
                kept[f"{side}.blocks.{number}.attention"],
                kept.get(f"{side}.blocks.{number}.cross"),
            )
            for number, block in enumerate(stack.blocks)
        )
        for side, stack in stacks_of(architecture).items()
    }


def best_of(scores: Tensor, count: int) -> Tensor:
    """The indices of the `count` highest scores, sorted."""
    return scores.argsort(descending=True, stable=True)[:count].sort().values


def _normalized(scores: Tensor) -> Tensor:
    return scores / scores.sum().clamp(min=torch.finfo(scores.dtype).tiny)
