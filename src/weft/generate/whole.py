"""A layer described to `kernels.c`, which then runs all of it in one call."""

import ctypes
import functools
from ctypes import c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor, nn

from weft.compiled import Kernel
from weft.generate.kernels import load_kernels
from weft.generate.layouts import Blocks, Layout
from weft.model.attention import AttentionSpec, View
from weft.model.block import Block, BlockSpec
from weft.model.feedforward import FeedForwardSpec
from weft.model.norm import NormSpec, RMSNorm
from weft.model.packed import pack

ACTIVATIONS = {"relu": 0, "relu-squared": 1, "silu": 2, "gelu-tanh": 3}  # exact GELU has no fast formula


class _Norm(ctypes.Structure):
    _fields_ = (("gain", c_void_p), ("bias", c_void_p), ("epsilon", c_float), ("kind", c_int))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Norm) for name in ("attention_norm", "query_norm", "key_norm", "feedforward_norm")),
        *((f"{name}{part}", c_void_p) for name in ("qkv", "out", "up", "down") for part in ("", "_bias")),
        *((name, c_int64) for name in ("width", "heads", "shared", "head_width", "inner")),
        ("scale", c_float),
        *((name, c_int) for name in ("post", "gated", "activation")),
    )


class WholeLayer:
    """The description, and everything whose address is in it."""

    def __init__(self, block: Block, layouts: dict[str, Blocks], kernel: Kernel) -> None:
        attention, feedforward = block.attention.spec, block.feedforward.spec
        norms = {
            "attention_norm": block.attention_norm,
            "query_norm": block.attention.query_norm,
            "key_norm": block.attention.key_norm,
            "feedforward_norm": block.feedforward_norm,
        }
        # Detached, so that the memory stays even if the module's parameters are given another.
        held = {name: _parameters(norm) for name, norm in norms.items()}
        self.kernel, self.held = kernel, (layouts, held)
        self.layer = _Layer(
            **{name: _described(norm, held[name]) for name, norm in norms.items()},
            **{name: layout.addresses[0] for name, layout in layouts.items()},
            **{f"{name}_bias": layout.addresses[1] for name, layout in layouts.items()},
            width=layouts["qkv"].depth,
            heads=attention.heads,
            shared=attention.key_value_heads,
            head_width=attention.head_width,
            inner=feedforward.inner,
            scale=attention.head_width**-0.5 if attention.scaled else 1.0,
            post=block.post,
            gated=feedforward.gated,
            activation=ACTIVATIONS[feedforward.activation],
        )
        self.address = ctypes.addressof(self.layer)
        wide = layouts["qkv"].width + layouts["out"].depth + layouts["up"].width
        self.work_per_row = layouts["qkv"].depth + wide  # numbers, to work in


def _parameters(norm: nn.Module | None) -> tuple[Tensor | None, Tensor | None]:
    """Gain and bias."""
    parts = (getattr(norm, name, None) for name in ("weight", "bias"))
    gain, bias = (None if part is None else part.detach().contiguous() for part in parts)
    return gain, bias


def _described(norm: nn.Module | None, held: tuple[Tensor | None, Tensor | None]) -> _Norm:
    if norm is None:
        return _Norm(None, None, 0.0, 0)
    assert isinstance(norm, nn.LayerNorm | RMSNorm)
    gain, bias = (None if part is None else part.data_ptr() for part in held)
    return _Norm(gain, bias, norm.eps, 2 if isinstance(norm, RMSNorm) else 1)


def whole_layer(block: Block, layouts: dict[str, Layout]) -> WholeLayer | None:
    """None for a layer that the kernel does not know: with cross-attention, an exact GELU, in whole bytes or half
    precision.
    """
    kernels = load_kernels()
    blocks = {name: layout for name, layout in layouts.items() if isinstance(layout, Blocks)}
    if kernels is None or len(blocks) < len(layouts) or block.cross is not None:
        return None
    if block.feedforward.spec.activation not in ACTIVATIONS or not _runs_right():
        return None
    if any(parameter.dtype != torch.float32 for parameter in block.parameters()):
        return None
    return WholeLayer(block, blocks, kernels.run)


@functools.cache
def _runs_right() -> bool:
    """Tried before it is trusted: a layer with everything in it, three sequences of one token each."""
    kernels = load_kernels()
    assert kernels is not None
    rows, width, attention = 3, 8, AttentionSpec(2, 4, 1, head_norm=NormSpec("rms"))
    spec = BlockSpec(attention, FeedForwardSpec(6, "silu", gated=True), NormSpec("layer"), "pre")
    on_cpu = torch.device("cpu"), torch.autocast("cpu", enabled=False), torch.inference_mode()
    with torch.random.fork_rng(devices=[]), on_cpu[0], on_cpu[1], on_cpu[2]:
        block = Block(spec, width).float()
        parts = {"qkv": block.attention.qkv, "out": block.attention.out}
        parts |= {"up": block.feedforward.up, "down": block.feedforward.down}
        whole = WholeLayer(block, {name: Blocks(part, kernels.multiply) for name, part in parts.items()}, kernels.run)
        x = torch.randn(rows, width, dtype=torch.float32)
        expected = block(x.clone(), pack([[0]] * rows), View(causal=True))
        keys, values = torch.zeros(2, rows, 1, 1, 4, dtype=torch.float32)
        begins, scores = torch.zeros(rows, dtype=torch.int64), torch.empty(rows, 1, dtype=torch.float32)
        work = torch.empty(rows * whole.work_per_row, dtype=torch.float32)
        pointers = [tensor.data_ptr() for tensor in (keys, values, begins)]
        given = whole.address, x.data_ptr(), work.data_ptr(), None, None, *pointers, None, 0, scores.data_ptr()
        kernels.run(*given, rows, 1, 0, 0, 1, 1)
        return torch.allclose(x, expected, atol=1e-4)
