"""How fast a network is on this machine, and how fast a smaller one would be.

What is timed is a forward pass and its head over the data's own texts, in the batches that predictions are made in
(throughput) or one at a time (latency). Contestants take turns, so that other work on the machine slows all of them
alike, and the speed-up is the median of the turns' ratios.

The table holds a few shapes of this network. Between them, seconds are interpolated:

    seconds = base + (encoder layers · e + decoder layers · d) · factor(inner width, heads)
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from weft.compress.prune.calibration import PruningData, even_places
from weft.compress.prune.cut import KeptLayer, KeptParts, StackSide, cut_network, keep_everything, stacks_of
from weft.inference.compiled_forward import compile_forward
from weft.model.network import Network
from weft.objectives.objective import Batch
from weft.progress import track

Measure = Literal["throughput", "latency"]
_TIMED_TOKENS = 2**12  # of a turn, for throughput
_TABLE_TURNS = 7
_LEAST_TURNS, _MOST_TURNS = 9, 41
_LONGEST_SECONDS = 20.0  # of one comparison
_SPREAD = 0.01  # of the median, where a comparison may end: the standard error of the ratio
INNER_SHARES = (0.25, 0.5)


@dataclass(frozen=True)
class SpeedUp:
    times: float  # the median ratio
    low: float  # the quartiles of the ratios
    high: float
    turns: int


@dataclass(frozen=True)
class LatencyTable:
    base: float  # seconds of embeddings and head
    layers: dict[StackSide, float]  # seconds of one whole layer
    widths: tuple[tuple[float, float], ...]  # share of the inner width, factor on a layer's seconds
    head_factor: float  # of a layer's seconds that all heads together take

    def seconds(self, layers: dict[StackSide, int], inner: float, heads: float) -> float:
        """`inner`, `heads`: shares of a whole layer's."""
        shares, factors = zip(*self.widths, strict=True)
        low = (factors[1] - factors[0]) / (shares[1] - shares[0]) * (inner - shares[0]) + factors[0]
        factor = float(np.interp(inner, shares, factors)) if inner >= shares[0] else max(low, 0.0)
        factor = max(factor - (1 - heads) * self.head_factor, 0.0)
        return self.base + factor * sum(self.layers[side] * count for side, count in layers.items())


def timed_batches(calibration: PruningData, measure: Measure) -> list[Batch]:
    """Some of the held samples: in batches, or one at a time."""
    if measure == "latency":
        return calibration.alone
    batches = calibration.held
    count = max(1, round(_TIMED_TOKENS / max(len(batch.packed.tokens) for batch in batches)))
    return [batches[place] for place in even_places(len(batches), count + 1)]


@torch.inference_mode()
def seconds_of(network: Network, batches: Sequence[Batch]) -> float:
    """Of one forward pass over all batches, heads included."""
    network.eval()
    began = time.perf_counter()
    for batch in batches:
        hidden, reader = network(batch.packed, batch.decoder), batch.decoder or batch.packed
        for kind in batch.counts:
            if kind in batch.answers:
                batch.answers[kind].logits(network, hidden, reader)
            else:
                network.head(kind)(hidden, reader, batch.rows)
    return time.perf_counter() - began


def _prepare(networks: Sequence[Network], batches: Sequence[Batch]) -> None:
    """The path that predictions take. The first pass packs the weights."""
    for network in networks:
        if network.fast is None and next(network.parameters()).device.type == "cpu":
            compile_forward(network, "fp32")
        seconds_of(network, batches)


def seconds_in_turn(networks: Sequence[Network], batches: Sequence[Batch], turns: int) -> np.ndarray:
    """(turns, networks)."""
    _prepare(networks, batches)
    found = np.zeros((turns, len(networks)))
    for turn in track(range(turns), "Timing", unit="rounds"):
        for number, network in enumerate(networks):
            found[turn, number] = seconds_of(network, batches)
    return found


def speed_up(before: Network, after: Network, batches: Sequence[Batch]) -> SpeedUp:
    """How many times faster `after` is."""
    _prepare((before, after), batches)
    ratios: list[float] = []
    began = time.perf_counter()
    while len(ratios) < _MOST_TURNS:
        # Alternately first: a turn's second contestant finds the processor in another state.
        pair = (before, after) if len(ratios) % 2 == 0 else (after, before)
        spent = {id(one): seconds_of(one, batches) for one in pair}
        ratios.append(spent[id(before)] / spent[id(after)])
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        is_sure = (high - low) / len(ratios) ** 0.5 < _SPREAD * middle
        is_late = time.perf_counter() - began > _LONGEST_SECONDS
        if len(ratios) >= _LEAST_TURNS and (is_sure or is_late):
            break
    return SpeedUp(float(middle), float(low), float(high), len(ratios))


def measure_table(network: Network, batches: Sequence[Batch], *, with_heads: bool) -> LatencyTable:
    """`with_heads`: also with fewer heads."""
    stacks, whole = stacks_of(network.architecture), keep_everything(network.architecture)
    shapes: dict[str, KeptParts] = {"whole": whole}
    for side, stack in stacks.items():
        if stack.layers > 1:
            shapes[f"one {side} layer"] = {**whole, side: whole[side][:1]}
    for share in INNER_SHARES:
        shapes[f"inner {share}"] = {side: tuple(_narrow(one, share) for one in whole[side]) for side in whole}
    if with_heads:
        shapes["heads"] = {side: tuple(_half_heads(one) for one in whole[side]) for side in whole}
    networks = [cut_network(network, kept) for kept in shapes.values()]
    # The fastest of the turns: other work on the machine only adds to a time.
    spent = seconds_in_turn(networks, batches, _TABLE_TURNS).min(axis=0).tolist()
    heads = next(iter(stacks.values())).blocks[0].attention.key_value_heads
    kept_heads = max(1, heads // 2) / heads
    counts = {side: stack.layers for side, stack in stacks.items()}
    return table_of(dict(zip(shapes, spent, strict=True)), counts, kept_heads)


def table_of(spent: Mapping[str, float], counts: dict[StackSide, int], kept_heads: float) -> LatencyTable:
    """From the seconds of each shape, the number of layers, and the share of the heads in the shape that has fewer."""
    whole, layers = spent["whole"], dict[StackSide, float]()
    for side, count in counts.items():
        # The time of a single layer cannot be told from the rest of the time: it counts as the layer's.
        saved = whole - spent[f"one {side} layer"] if count > 1 else whole
        layers[side] = max(saved, 0.0) / max(count - 1, 1)
    in_layers = min(sum(layers[side] * count for side, count in counts.items()), whole)
    base = whole - in_layers
    factors = [(spent[f"inner {share}"] - base) / in_layers for share in INNER_SHARES]
    factors = np.maximum.accumulate(np.clip(factors, 0.0, 1.0)).tolist()  # noise must not make more neurons faster
    saved = (whole - spent.get("heads", whole)) / in_layers
    head_factor = saved / (1 - kept_heads) if kept_heads < 1 else 0.0
    widths = tuple(zip((*INNER_SHARES, 1.0), (*factors, 1.0), strict=True))
    return LatencyTable(base, layers, widths, max(head_factor, 0.0))


def _narrow(layer: KeptLayer, share: float) -> KeptLayer:
    return replace(layer, neurons=layer.neurons[: max(1, round(share * len(layer.neurons)))])


def _half_heads(layer: KeptLayer) -> KeptLayer:
    count = max(1, len(layer.heads) // 2)
    cross = None if layer.cross is None else layer.cross[:count]
    return replace(layer, heads=layer.heads[:count], cross=cross)
