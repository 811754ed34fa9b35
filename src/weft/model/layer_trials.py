"""Each function of `layers.c` is compared with its formula once per process, before it is used.

The random numbers come from generators of their own: the default generator of a training run is not advanced.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.layer_passes import Gate, Heads, Layer, Rms
from weft.model.positions import Rotary, rotary_table, rotate

_ROWS, _WIDTH, _EPSILON = 5, 34, 1e-6


def _numbers(*shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=torch.float32, requires_grad=True) for shape in shapes]


def _agree(ours: Iterable[Tensor], formula: Iterable[Tensor], leaves: Sequence[Tensor]) -> bool:
    """Whether outputs and gradients of all inputs are equal."""
    sides = []
    for outs in (list(ours), list(formula)):
        wanted = [one.detach().clone() for one in _numbers(*(out.shape for out in outs))]
        sides.append([*outs, *torch.autograd.grad(outs, leaves, wanted)])
    return all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(*sides, strict=True))


def _rms_norm(_: Any) -> bool:
    x, gain = _numbers((_ROWS, _WIDTH), (_WIDTH,))
    return _agree(Rms.apply(x, gain, _EPSILON), (F.rms_norm(x, gain.shape, gain, _EPSILON), x * 1), (x, gain))


def _layer_norm(_: Any) -> bool:
    """With and without s, with and without a bias."""
    x, s, gain, bias = _numbers((_ROWS, _WIDTH), (_ROWS, _WIDTH), (_WIDTH,), (_WIDTH,))
    for total, other, shift in ((x, None, bias), (x + s, s, bias), (x, None, None), (x + s, s, None)):
        leaves = [one for one in (x, other, gain, shift) if one is not None]
        formula = F.layer_norm(total, gain.shape, gain, shift, _EPSILON), total * 1
        if not _agree(Layer.apply(x, other, gain, shift, _EPSILON, 0.0), formula, leaves):
            return False
    return True


def _dropout(_: Any) -> bool:
    """Dropped elements are zero in s and in its gradient, the others are scaled."""
    x, s, gain, bias = _numbers((_ROWS, _WIDTH), (_ROWS, _WIDTH), (_WIDTH,), (_WIDTH,))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = Layer.apply(x, s, gain, bias, _EPSILON, 0.25)
    kept = ((ours[1] - x) / s).detach()
    share = float((kept.abs() < 1e-3).float().mean())
    formula = F.layer_norm(x + s * kept, gain.shape, gain, bias, _EPSILON), x + s * kept
    is_either = ((kept.abs() < 1e-3) | ((kept - 1 / 0.75).abs() < 1e-2)).all()
    return bool(is_either) and 0.1 < share < 0.4 and _agree(ours, formula, (x, s, gain, bias))


def _swiglu(_: Any) -> bool:
    (up,) = _numbers((_ROWS, _WIDTH))
    a, b = up.chunk(2, dim=-1)
    return _agree([Gate.apply(up)], [F.silu(a) * b], [up])


def _rotated_heads(_: Any) -> bool:
    """Grouped, with and without a norm."""
    x, first, second = _numbers((_ROWS, 8, 6), (6,), (6,))
    table = rotary_table(Rotary(10), torch.arange(_ROWS), 6, torch.float32)
    q, k, v = x.split([4, 2, 2], dim=1)
    norms = F.rms_norm(q, (6,), first, _EPSILON), F.rms_norm(k, (6,), second, _EPSILON)
    for gains, heads in (((first, second), norms), ((None, None), (q, k))):
        leaves = [x, *(gain for gain in gains if gain is not None)]
        formula = torch.cat([*(rotate(one, table) for one in heads), v], dim=1)
        if not _agree([Heads.apply(x, *gains, *table, (4, 2, 2), _EPSILON)], [formula], leaves):
            return False
    return True


LAYER_TRIALS = (_rms_norm, _layer_norm, _dropout, _swiglu, _rotated_heads)
