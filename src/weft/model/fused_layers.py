"""Norms, gates and rotations on CPU, each in one pass over memory, forward and backward (`layers.c`).

torch composes RMSNorm, SwiGLU, dropout and residual sums of several operations, and each of them reads and writes all
data again. In a small model that takes a third of a training step. Without a compiler, fp32 or a CPU, every function
here falls back to torch operations.
"""

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.compiled import are_plain, constant_when_traced, load_tried
from weft.model.dropout import drop
from weft.model.layer_passes import Gate, Heads, Layer, Rms, library
from weft.model.layer_trials import LAYER_TRIALS
from weft.model.positions import rotate

Norm = nn.LayerNorm | nn.RMSNorm


def can_fuse(*tensors: Tensor) -> bool:
    """Whether the C passes take these tensors."""
    return are_plain(*tensors) and all(x.is_contiguous() for x in tensors) and has_passes()


@constant_when_traced
def has_passes() -> bool:
    return load_layer_kernels() is not None


@functools.cache
def load_layer_kernels() -> ctypes.CDLL | None:
    return load_tried("layers", library, LAYER_TRIALS)


def to_float32(x: Tensor) -> Tensor:
    """Under CPU autocast products give bfloat16, but the C passes take fp32."""
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and has_passes():
        return x.float()
    return x


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    if x.dim() == 2 and can_fuse(x, gain):
        return Rms.apply(x, gain, epsilon)[0]
    # In one type: torch's kernel for GPUs takes no other, and adds up in fp32 whatever the type is.
    return F.rms_norm(x, gain.shape, gain.to(x.dtype), epsilon)


def norm_and_input(norm: Norm, x_TW: Tensor) -> tuple[Tensor, Tensor]:
    """(norm(x), x). The backward pass adds the gradients of both in one pass."""
    if x_TW.dim() != 2 or not can_fuse(x_TW, *_weights(norm)):
        return norm(x_TW), x_TW
    if isinstance(norm, nn.RMSNorm):
        return Rms.apply(x_TW, norm.weight, norm.eps)
    return Layer.apply(x_TW, None, norm.weight, norm.bias, norm.eps, 0.0)


def norm_of_sum(norm: Norm, x_TW: Tensor, s_TW: Tensor, dropout: float) -> Tensor:
    """norm(x + drop(s))."""
    s_TW = to_float32(s_TW)
    if not isinstance(norm, nn.LayerNorm) or x_TW.dim() != 2 or not can_fuse(x_TW, s_TW, *_weights(norm)):
        return norm(x_TW + (drop(s_TW, dropout) if dropout else s_TW))
    normal, _ = Layer.apply(x_TW, s_TW, norm.weight, norm.bias, norm.eps, dropout)
    return normal


def gate(up_TI: Tensor) -> Tensor:
    """SwiGLU: silu(a) · b of the two halves a, b."""
    up_TI = to_float32(up_TI)
    if up_TI.dim() == 2 and can_fuse(up_TI):
        return Gate.apply(up_TI)
    a, b = up_TI.chunk(2, dim=-1)
    return F.silu(a) * b


def prepare_heads(
    heads_THD: Tensor,
    counts: Sequence[int],
    norms: tuple[Norm | None, Norm | None],
    table: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Split the joint projection into queries, keys and values; normalise and rotate queries and keys."""
    heads_THD = to_float32(heads_THD)
    gains = [None if norm is None else norm.weight for norm in norms]
    tensors = [heads_THD, *(gain for gain in gains if gain is not None), *(table or ())]
    if table is not None and can_fuse(*tensors) and not any(isinstance(norm, nn.LayerNorm) for norm in norms):
        epsilon = 0.0 if norms[0] is None else norms[0].eps
        q, k, v = Heads.apply(heads_THD, *gains, *table, tuple(counts), epsilon).split(list(counts), dim=1)
        return q, k, v
    q, k, v = heads_THD.split(list(counts), dim=1)
    if norms[0] is not None and norms[1] is not None:
        q, k = norms[0](q), norms[1](k)
    if table is not None:
        q, k = rotate(q, table), rotate(k, table)
    # Under autocast norms and rotations give fp32, but half-precision kernels need one dtype for all three.
    return q.to(v.dtype), k.to(v.dtype), v


def _weights(norm: Norm) -> list[Tensor]:
    return [norm.weight, norm.bias] if isinstance(norm, nn.LayerNorm) and norm.bias is not None else [norm.weight]
