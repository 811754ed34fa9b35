"""In which order layers go: again and again, the one whose loss is measured to hurt least.

Block influence (Men et al. 2024), 1 − cos of a layer's input and output, tells which few layers are tried in each
round. The loss of the held samples decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.nn import functional as F

from weft.compress.prune.calibration import PruningData
from weft.compress.prune.cut import KeptParts, StackSide, cut_network, keep_everything, stacks_of
from weft.model.keep import Keep
from weft.model.network import Network
from weft.objectives.objective import Batch
from weft.progress import Gauge

Layers = dict[StackSide, tuple[int, ...]]  # the layers that are left, by stack
Dropped = tuple[tuple[int, ...], ...]  # the same, as a key

_TRIED = 3  # layers in a round
_TOKENS = 2**12  # of held samples that judge a layer
_INFLUENCE_BATCHES = 2


def all_layers(network: Network) -> Layers:
    return {side: tuple(range(stack.layers)) for side, stack in stacks_of(network.architecture).items()}


def drop_layers(
    network: Network,
    calibration: PruningData,
    known: dict[Dropped, float],
    is_enough: Callable[[Layers], bool],
    may_drop: Callable[[StackSide, Layers], bool],
) -> list[Layers]:
    """All layers, then one less each, until it is enough or nothing may be dropped. `known`: losses that were measured
    before; new ones are added.
    """
    states = [all_layers(network)]
    if is_enough(states[0]):
        return states
    influence = block_influence(network, calibration.held[:_INFLUENCE_BATCHES])
    with Gauge("Trying to drop layers", unit="layers", summary=False) as gauge:
        while not is_enough(states[-1]):
            options = [
                (side, layer)
                for side, layers in states[-1].items()
                for layer in layers
                if may_drop(side, states[-1]) and is_droppable(network, side, layer)
            ]
            options = sorted(options, key=lambda option: influence[option])[:_TRIED]
            if not options:
                break
            tried = [without(states[-1], *option) for option in options]
            for layers in tried:
                if _key(layers) not in known:
                    cut = cut_network(network, whole_layers(network, layers))
                    known[_key(layers)] = calibration.loss(cut, _TOKENS)
                gauge.add(1)
            states.append(min(tried, key=lambda layers: known[_key(layers)]))
    return states


def _key(layers: Layers) -> Dropped:
    return tuple(layers.values())


def is_droppable(network: Network, side: StackSide, layer: int) -> bool:
    """The first layer of a stack may lack a norm that every other one has (ModernBERT): no other can take its place."""
    return layer > 0 or stacks_of(network.architecture)[side].first_norm


def without(layers: Layers, side: StackSide, layer: int) -> Layers:
    return {**layers, side: tuple(number for number in layers[side] if number != layer)}


def whole_layers(network: Network, layers: Layers) -> KeptParts:
    """These layers with all their neurons and heads."""
    everything = keep_everything(network.architecture)
    return {side: tuple(everything[side][number] for number in numbers) for side, numbers in layers.items()}


@torch.no_grad()
def block_influence(network: Network, batches: Sequence[Batch]) -> dict[tuple[StackSide, int], float]:
    """The mean of 1 − cos(input, output) over tokens, for each layer."""
    stacks = stacks_of(network.architecture)
    keeps = {side: Keep(hidden=tuple(range(stack.layers + 1))) for side, stack in stacks.items()}
    keep = keeps[next(iter(stacks))]
    if len(stacks) > 1:
        keep = replace(keeps["decoder"], source=keeps["encoder"])
    found: dict[tuple[StackSide, int], float] = {}
    for batch in batches:
        _, kept = network(batch.packed, batch.decoder, keep=keep)
        of_side = {"decoder": kept, "encoder": kept.source} if len(stacks) > 1 else {next(iter(stacks)): kept}
        for side, stack in stacks.items():
            hidden = of_side[side].hidden  # type: ignore[union-attr]
            for layer in range(stack.layers):
                change = 1 - F.cosine_similarity(hidden[layer], hidden[layer + 1], dim=-1).mean()
                found[side, layer] = found.get((side, layer), 0.0) + float(change) / len(batches)
    return found
