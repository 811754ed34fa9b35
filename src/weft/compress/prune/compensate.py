"""Least-squares compensation: what is left takes over the work of what was cut.

Layer by layer, from the bottom, the output matrix of each sublayer (`attention.out`, `cross.out`, `feedforward.down`)
is fitted anew, so that the hidden state after it comes near the whole network's:

    min over W, b   Σ over tokens ‖target − r − X W − b‖²  +  λ ‖W − W₀‖²

X is the sublayer's input to that matrix and r the residual, both in the network that is already pruned below; the
target is the whole network's sum before the norm (post-norm) or hidden state (pre-norm). W₀ are the weights that were
kept. Where the following layers were dropped, the target is the hidden state that the next kept layer used to read; a
post-norm layer reaches it through its norm, which is inverted. A fit that does not lower the error of tokens that were
left out of it is not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft.compress.prune.calibration import some_batches_of
from weft.compress.prune.cut import KeptParts, StackSide
from weft.model.attention import View
from weft.model.block import Block
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.objective import Batch
from weft.progress import Gauge

_RIDGES = (1e-3, 1e-2)  # λ, relative to the mean square of an input
_HELD_OUT = 5  # every so many batches decide whether a fit is used
_MOST_TOKENS, _MOST_STATE = 2**14, 2**25  # tokens to fit on; numbers in a hidden state of all of them
_SMALLEST_GAIN = 1e-2  # of a norm that is inverted, relative to the largest


@dataclass
class LeastSquares:
    """Sums over rows for min ‖y − x W − b‖²: the products of [x, 1] with itself and with y."""

    xx: Tensor
    xy: Tensor
    yy: float
    bias: bool

    @classmethod
    def empty(cls, inputs: int, outputs: int, *, bias: bool) -> "LeastSquares":
        size = inputs + bias
        xx, xy = (torch.zeros(size, columns, dtype=torch.float64) for columns in (size, outputs))
        return cls(xx, xy, 0.0, bias)

    def add(self, x: Tensor, y: Tensor) -> None:
        if self.bias:
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        self.xx += (x.T @ x).double()
        self.xy += (x.T @ y).double()
        self.yy += float(y.double().square().sum())

    def solve(self, start: Tensor, ridge: float) -> Tensor:
        """(inputs [+ 1], outputs). The ridge pulls towards `start`; the bias is free."""
        penalty = torch.full((len(self.xx),), ridge * float(self.xx.diagonal().mean()), dtype=torch.float64)
        if self.bias:
            penalty[-1] = 0.0
        factor, failed = torch.linalg.cholesky_ex(self.xx + penalty.diag())
        return start if failed else start + torch.cholesky_solve(self.xy - self.xx @ start, factor)

    def error(self, weights: Tensor) -> float:
        """‖y − x W − b‖², summed."""
        return self.yy + float(((self.xx @ weights - 2 * self.xy) * weights).sum())


@dataclass
class _Stream:
    """A batch on its way through a stack of the whole network and of the pruned one."""

    batch: Packed
    whole: Tensor
    pruned: Tensor
    source: Packed | None = None
    whole_memory: Tensor | None = None
    pruned_memory: Tensor | None = None


@torch.no_grad()
def compensate(
    whole: Network, pruned: Network, kept: KeptParts, batches: Sequence[Batch], most_tokens: int = _MOST_TOKENS
) -> None:
    """Fits the output matrices of `pruned` in place."""
    chosen = some_batches_of(batches, min(most_tokens, _MOST_STATE // whole.width))
    layers = sum(map(len, kept.values()))
    memories: list[tuple[Tensor, Tensor]] = []
    with Gauge("Compensating", unit="layers", total_items=layers, summary=False) as gauge:
        for side in kept:
            streams = _open(whole, pruned, side, chosen, memories)
            _fit_stack(whole, pruned, side, kept, streams, gauge)
            memories = [(stream.whole, stream.pruned) for stream in streams]


def _open(
    whole: Network, pruned: Network, side: StackSide, batches: Sequence[Batch], memories: list[tuple[Tensor, Tensor]]
) -> list[_Stream]:
    streams = []
    for number, batch in enumerate(batches):
        if memories:
            assert batch.decoder is not None
            x, y = ((network.decoder_embed or network.embed)(batch.decoder) for network in (whole, pruned))
            streams.append(_Stream(batch.decoder, x, y, batch.packed, *memories[number]))
        else:
            streams.append(_Stream(batch.packed, whole.embed(batch.packed), pruned.embed(batch.packed)))
    return streams


def _fit_stack(
    whole: Network, pruned: Network, side: StackSide, kept: KeptParts, streams: list[_Stream], gauge: Gauge
) -> None:
    old, new = getattr(whole, side), getattr(pruned, side)
    numbers = [layer.layer for layer in kept[side]]
    ends = [*numbers[1:], len(old.blocks)]
    views = [(old.views(one.batch, one.whole.dtype), new.views(one.batch, one.whole.dtype)) for one in streams]
    for one, (old_views, _) in zip(streams, views, strict=True):
        for number in range(numbers[0]):  # dropped before the first that is kept: nothing can be fitted yet
            one.whole = old.blocks[number](one.whole, one.batch, old_views[number], one.whole_memory, one.source)
    for place, (number, end) in enumerate(zip(numbers, ends, strict=True)):
        sums = []
        for one, (old_views, _) in zip(streams, views, strict=True):
            one.whole, found = _pass_whole(old.blocks[number], one, old_views[number])
            for dropped in range(number + 1, end):
                one.whole = old.blocks[dropped](one.whole, one.batch, old_views[dropped], one.whole_memory, one.source)
            sums.append(found)
        block, new_views = new.blocks[place], [pair[1][place] for pair in views]
        count = len(sums[0])
        for sublayer in range(count):
            is_merged = sublayer == count - 1 and end > number + 1
            _fit_matrix(block, sublayer, streams, new_views, [part[sublayer] for part in sums], merged=is_merged)
        gauge.add(1)
    for one in streams:
        one.whole, one.pruned = (
            x if stack.norm is None else stack.norm(x) for stack, x in ((old, one.whole), (new, one.pruned))
        )


def _pass_whole(block: Block, stream: _Stream, view: View) -> tuple[Tensor, list[Tensor]]:
    """The block's output, and after each sublayer the sum with its residual, before a norm."""
    x, sums = stream.whole, []
    for number, norm in enumerate(_norms(block)):
        sums.append(x + _run_sublayer(block, number, x, stream, view, stream.whole_memory))
        x = _after(block, norm, sums[-1])
    return x, sums


def _run_sublayer(block: Block, number: int, x: Tensor, stream: _Stream, view: View, memory: Tensor | None) -> Tensor:
    """What the sublayer adds to `x`."""
    norm = _norms(block)[number]
    x = x if block.post or norm is None else norm(x)
    if number == 0:
        return block.attention(x, stream.batch, view)
    if number == len(_norms(block)) - 1:
        return block.feedforward(x)
    assert block.cross is not None
    return block.cross(x, stream.batch, memory, stream.source)


def _after(block: Block, norm: nn.Module | None, total: Tensor) -> Tensor:
    return norm(total) if block.post and norm is not None else total


def _matrices(block: Block) -> list[nn.Linear]:
    cross = [] if block.cross is None else [block.cross.out]
    return [block.attention.out, *cross, block.feedforward.down]


def _norms(block: Block) -> list[nn.Module | None]:
    cross = [] if block.cross is None else [block.cross_norm]
    return [block.attention_norm, *cross, block.feedforward_norm]


def _input_of_matrix(block: Block, number: int, stream: _Stream, view: View) -> tuple[Tensor, Tensor]:
    """What the sublayer's output matrix reads in the pruned network, and gives."""
    taken: list[Tensor] = []
    handle = _matrices(block)[number].register_forward_hook(lambda _, given, out: taken.append(given[0]))
    try:
        out = _run_sublayer(block, number, stream.pruned, stream, view, stream.pruned_memory)
    finally:
        handle.remove()
    return taken[0], out


def _fit_matrix(
    block: Block, sublayer: int, streams: list[_Stream], views: list[View], targets: list[Tensor], *, merged: bool
) -> None:
    """Fits the matrix, and moves the pruned streams behind it."""
    matrix, norm = _matrices(block)[sublayer], _norms(block)[sublayer]
    has_bias = matrix.bias is not None
    fit, held = (LeastSquares.empty(matrix.in_features, matrix.out_features, bias=has_bias) for _ in range(2))
    inputs = []
    for number, (one, view, target) in enumerate(zip(streams, views, targets, strict=True)):
        x, out = _input_of_matrix(block, sublayer, one, view)
        if merged:
            target = _before_norm(norm, one.whole, one.pruned + out) if block.post else one.whole
        part = held if number % _HELD_OUT == _HELD_OUT - 1 or (len(streams) < _HELD_OUT and number == 0) else fit
        part.add(x, target - one.pruned)
        inputs.append(x)
    start = matrix.weight.T.double()
    if has_bias:
        start = torch.cat([start, matrix.bias[None].double()])
    best = min([start, *(fit.solve(start, ridge) for ridge in _RIDGES)], key=held.error)
    matrix.weight.copy_(best[: matrix.in_features].T)
    if has_bias:
        matrix.bias.copy_(best[-1])
    for one, x in zip(streams, inputs, strict=True):
        one.pruned = _after(block, norm, one.pruned + matrix(x))


def _before_norm(norm: nn.Module | None, wanted: Tensor, now: Tensor) -> Tensor:
    """What a layer norm would have to read to give `wanted`, with the mean and the variance of what it reads now."""
    assert isinstance(norm, nn.LayerNorm)
    variance, mean = torch.var_mean(now, dim=-1, keepdim=True, correction=0)
    gain = norm.weight
    usable = gain.abs() > _SMALLEST_GAIN * gain.abs().max()
    shift = 0.0 if norm.bias is None else norm.bias
    inverse = (wanted - shift) / torch.where(usable, gain, 1.0) * (variance + norm.eps).sqrt() + mean
    return torch.where(usable, inverse, now)
