"""The shape that stays: which layers, how many neurons and heads in each.

Every layer keeps equally many, because no family's format has layers that differ. For each number of layers there is
one largest inner width within the bound. These few candidates are cut and compensated, trained for a short while if
there are minutes for recovery, and the held samples' loss chooses among them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from weft.compress.prune.bounds import Bounds
from weft.compress.prune.calibration import PruningData, even_places
from weft.compress.prune.compensate import compensate
from weft.compress.prune.cut import (
    KeptLayer,
    KeptParts,
    StackSide,
    cut_architecture,
    cut_network,
    describe_cut,
    stacks_of,
)
from weft.compress.prune.depth import Dropped, Layers, all_layers, drop_layers, is_droppable
from weft.compress.prune.fisher import PartScores, fisher_scores
from weft.compress.prune.recover import Recovery
from weft.compress.prune.select import best_parts
from weft.compress.prune.timing import LatencyTable
from weft.errors import InputError
from weft.interchange.folder import Description, save_format
from weft.model.network import Network, count_parameters, outline
from weft.progress import say

WIDTH_STEPS = ((512, 32), (64, 16), (1, 1))  # inner widths from the first on are multiples of the second
HEAD_SHARES = (0.75, 0.5)  # tried where the format allows fewer heads
_TRIAL_TOKENS = 2**13  # that a candidate's compensation is fitted on
_MOST_RECOVERED = 4  # candidates that are trained for a short while
_LEAST_SHARE = 1 / 16  # of the neurons: a candidate with fewer is not tried if there are others
_TOO_FAST = 1.1  # times the asked speed-up
_NEAR = 1.02  # a bound counts as met at this much more than its time


@dataclass(frozen=True)
class PrunedShape:
    layers: Layers
    inner: int
    heads: int  # key/value heads

    def counts(self) -> dict[StackSide, int]:
        return {side: len(numbers) for side, numbers in self.layers.items()}


@dataclass(frozen=True)
class Chosen:
    shape: PrunedShape
    kept: KeptParts
    network: Network
    cut_loss: float  # before the compensation
    loss: float


class Chooser:
    """A network, its calibration and what was found out about them."""

    def __init__(
        self,
        network: Network,
        description: Description,
        calibration: PruningData,
        bounds: Bounds,
        table: LatencyTable | None,
    ) -> None:
        """`table`: needed for a speed-up."""
        self.network, self.description, self.calibration = network, description, calibration
        self.bounds, self.table = bounds, table
        self._losses: dict[Dropped, float] = {}  # without some layers
        blocks = [block for stack in stacks_of(network.architecture).values() for block in stack.blocks]
        self.inner = min(block.feedforward.inner for block in blocks)
        self.heads = min(block.attention.key_value_heads for block in blocks)

    @cached_property
    def scores(self) -> PartScores:
        return fisher_scores(self.calibration.with_task(self.network), self.calibration.fit)

    # What a shape costs.

    def predicted_speed_up(self, shape: PrunedShape) -> float:
        assert self.table is not None
        whole = PrunedShape(all_layers(self.network), self.inner, self.heads)
        seconds = [
            self.table.seconds(one.counts(), one.inner / self.inner, one.heads / self.heads) for one in (whole, shape)
        ]
        return seconds[0] / max(seconds[1], 1e-12)

    def size(self, shape: PrunedShape) -> int:
        """Bytes of the weights."""
        return 4 * count_parameters(outline(cut_architecture(self.network.architecture, self.any_parts(shape))))

    def any_parts(self, shape: PrunedShape) -> KeptParts:
        """Parts of this shape, whichever."""
        neurons, heads = torch.arange(shape.inner), torch.arange(shape.heads)
        stacks = stacks_of(self.network.architecture)
        return {
            side: tuple(KeptLayer(number, neurons, heads, heads if stacks[side].cross else None) for number in numbers)
            for side, numbers in shape.layers.items()
        }

    def meets(self, shape: PrunedShape, speedup: float | None) -> bool:
        is_fast = speedup is None or self.predicted_speed_up(shape) * _NEAR >= speedup
        return is_fast and (self.bounds.size is None or self.size(shape) <= self.bounds.size)

    # The widths and head counts that may be tried.

    def widths(self) -> list[int]:
        """Ascending."""
        if self.bounds.inner is not None:
            return [self._count(self.bounds.inner, self.inner, "inner")]
        step = next(step for least, step in WIDTH_STEPS if self.inner >= least)
        return [*range(step, self.inner, step), self.inner] if self.bounds.is_free else [self.inner]

    def head_counts(self) -> list[int]:
        if self.bounds.heads is not None:
            return [self._count(self.bounds.heads, self.heads, "heads")]
        fewer = {max(1, round(share * self.heads)) for share in HEAD_SHARES} if self.may_lose_heads else set()
        return sorted({self.heads, *(fewer if self.bounds.is_free else ())})

    @cached_property
    def may_lose_heads(self) -> bool:
        """Whether the format of this family has a number of heads apart from its width."""
        if self.heads == 1:
            return False
        shape = PrunedShape(all_layers(self.network), self.inner, self.heads - 1)
        architecture = cut_architecture(self.network.architecture, self.any_parts(shape))
        described = describe_cut(self.description, architecture)
        return save_format(outline(architecture), described) == save_format(self.network, self.description)

    def _count(self, given: float | int, most: int, key: str) -> int:
        count = given if isinstance(given, int) else max(1, round(given * most))
        if count > most:
            raise InputError(f"{key}={given} is more than there are: a layer has {most:,}.")
        return count

    # The choice.

    def candidates(self, speedup: float | None) -> list[PrunedShape]:
        """The largest width within the bound for each number of layers."""
        widths, heads = self.widths(), self.head_counts()
        is_enough = self._is_enough(speedup, widths, heads)
        states = drop_layers(self.network, self.calibration, self._losses, is_enough, self._may_drop)
        if self.bounds.layers is not None:
            states = states[-1:]
        found = []
        for layers in states:
            shapes = []
            for count in heads:
                fitting = [shape for inner in widths if self.meets(shape := PrunedShape(layers, inner, count), speedup)]
                shapes += fitting[-1:]
            found += [max(shapes, key=self._kept_score)] if len(shapes) > 1 else shapes
        return [shape for shape in found if self._is_worth_trying(shape, speedup)] or found

    def _is_worth_trying(self, shape: PrunedShape, speedup: float | None) -> bool:
        """Neither much faster than asked, nor with hardly any neurons."""
        is_too_fast = speedup is not None and self.predicted_speed_up(shape) > _TOO_FAST * speedup
        return shape.inner >= _LEAST_SHARE * self.inner and not is_too_fast

    def _is_enough(
        self, speedup: float | None, widths: Sequence[int], heads: Sequence[int]
    ) -> Callable[[Layers], bool]:
        wanted = self.bounds.layers
        if wanted is not None:
            return lambda layers: all(len(numbers) <= wanted for numbers in layers.values())
        if not self.bounds.is_free:
            return lambda layers: True
        return lambda layers: self.meets(PrunedShape(layers, widths[-1], heads[-1]), speedup)

    def _may_drop(self, side: StackSide, layers: Layers) -> bool:
        return len(layers[side]) > max(1, self.bounds.layers or 1)

    def _kept_score(self, shape: PrunedShape) -> float:
        """The share of the Fisher scores that stays."""
        kept = best_parts(self.network.architecture, self.scores, shape.layers, shape.inner, shape.heads)
        total = 0.0
        for side, layers in kept.items():
            for layer in layers:
                name = f"{side}.blocks.{layer.layer}"
                total += float(self.scores[f"{name}.feedforward"][layer.neurons].sum())
                total += float(self.scores[f"{name}.attention"][layer.heads].sum())
        return total

    def check_bounds(self) -> None:
        """Raises InputError if they cannot be met."""
        speedup = self.bounds.speedup
        wanted = self.bounds.layers
        for side, numbers in all_layers(self.network).items():
            if wanted is not None and wanted > len(numbers):
                raise InputError(f"layers={wanted} is more than there are: the {side} has {len(numbers)}.")
        least = {
            side: tuple(n for n in numbers if not is_droppable(self.network, side, n))[:1] or numbers[:1]
            if wanted is None
            else numbers[:wanted]
            for side, numbers in all_layers(self.network).items()
        }
        smallest = PrunedShape(least, self.widths()[0], self.head_counts()[0])
        is_fixed = any(bound is not None for bound in (wanted, self.bounds.inner, self.bounds.heads))
        rest = " with the other bounds" if is_fixed else ""
        if speedup is not None and (most := self.predicted_speed_up(smallest)) < speedup:
            raise InputError(
                f"speedup={speedup:g}x cannot be reached{rest}: one layer of the smallest width would be "
                f"{math.floor(most * 10) / 10:g}x as fast. Embeddings and head take the rest of the time."
            )
        if self.bounds.size is not None and (size := self.size(smallest)) > self.bounds.size:
            raise InputError(
                f"size={self.bounds.size / 1e6:g}MB cannot be reached{rest}: with one layer of the smallest width "
                f"{size / 1e6:.1f} MB are left, most of them embeddings. See vocabulary=."
            )

    def best(self, shapes: Sequence[PrunedShape], recovery: Recovery | None = None) -> PrunedShape:
        """The candidate with the lowest loss after a short compensation, or after a short recovery, too."""
        if len(shapes) == 1:
            return shapes[0]
        if recovery is not None:  # each takes its time: a few of many, from the deepest to the widest
            shapes = [shapes[place] for place in even_places(len(shapes), _MOST_RECOVERED)]
        minutes = 0.0 if recovery is None else recovery.minutes_of_trial(len(shapes))
        tried: list[tuple[float, PrunedShape]] = []
        for shape in shapes:
            fitted = self._fitted(shape)
            if recovery is None:
                loss, after = self.calibration.loss(fitted, _TRIAL_TOKENS), ""
            else:
                loss, after = recovery.trial(fitted, minutes), f" after {minutes * 60:.0f} s of recovery"
            tried.append((loss, shape))
            say(f"  {self.in_words(shape)}: loss {loss:.4f}{after}")
        return min(tried, key=lambda one: one[0])[1]

    def _fitted(self, shape: PrunedShape) -> Network:
        kept = best_parts(self.network.architecture, self.scores, shape.layers, shape.inner, shape.heads)
        fitted = cut_network(self.network, kept)
        compensate(self.network, fitted, kept, self.calibration.fit, _TRIAL_TOKENS)
        return fitted

    def prune(self, shape: PrunedShape) -> Chosen:
        """Cut and compensated. The compensation is left out if the loss is lower without."""
        kept = best_parts(self.network.architecture, self.scores, shape.layers, shape.inner, shape.heads)
        cut = cut_network(self.network, kept)
        before = self.calibration.loss(cut)
        fitted = cut_network(self.network, kept)
        compensate(self.network, fitted, kept, self.calibration.fit)
        after = self.calibration.loss(fitted)
        network, loss = (fitted, after) if after < before else (cut, before)
        return Chosen(shape, kept, network, before, loss)

    def neighbour(self, shape: PrunedShape, seconds_factor: float) -> PrunedShape:
        """The width whose predicted time is `seconds_factor` times that of the shape."""
        wanted = self.predicted_speed_up(shape) / seconds_factor
        near = [replace(shape, inner=inner) for inner in self.widths()]
        return min(near, key=lambda one: abs(math.log(self.predicted_speed_up(one) / wanted)))

    def in_words(self, shape: PrunedShape) -> str:
        numbers = {side: len(stack.blocks) for side, stack in stacks_of(self.network.architecture).items()}
        parts = [
            f"{len(shape.layers[side])} of {numbers[side]} {side} layers"
            if len(numbers) > 1
            else f"{len(shape.layers[side])} of {numbers[side]} layers"
            for side in numbers
        ]
        parts.append(f"{shape.inner:,} of {self.inner:,} inner neurons")
        if shape.heads != self.heads:
            parts.append(f"{shape.heads} of {self.heads} heads")
        return ", ".join(parts)
