"""A layer described to `kernels.c`, which then runs all of it in one call."""

import ctypes
from ctypes import c_float, c_int, c_long, c_void_p

from torch import nn

from weft.generate.kernels import Kernel, load_kernels
from weft.generate.layouts import Blocks, Layout
from weft.model.block import Block
from weft.model.norm import RMSNorm

ACTIVATIONS = {"relu": 0, "relu-squared": 1, "silu": 2, "gelu-tanh": 3}  # exact GELU has no fast formula


class _Norm(ctypes.Structure):
    _fields_ = (("gain", c_void_p), ("bias", c_void_p), ("epsilon", c_float), ("kind", c_int))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Norm) for name in ("attention_norm", "query_norm", "key_norm", "feedforward_norm")),
        *((f"{name}{part}", c_void_p) for name in ("qkv", "out", "up", "down") for part in ("", "_bias")),
        *((name, c_long) for name in ("width", "heads", "shared", "head_width", "inner")),
        ("scale", c_float),
        *((name, c_int) for name in ("post", "gated", "activation")),
    )


class WholeLayer:
    def __init__(self, block: Block, layouts: dict[str, Blocks], kernel: Kernel) -> None:
        attention, feedforward = block.attention.spec, block.feedforward.spec
        norms = {
            "attention_norm": block.attention_norm,
            "query_norm": block.attention.query_norm,
            "key_norm": block.attention.key_norm,
            "feedforward_norm": block.feedforward_norm,
        }
        self.kernel, self.held = kernel, (layouts, [norm and list(norm.parameters()) for norm in norms.values()])
        self.layer = _Layer(
            **{name: _described(norm) for name, norm in norms.items()},
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
        self.work = layouts["qkv"].depth + wide  # numbers for each row, to work in


def _described(norm: nn.Module | None) -> _Norm:
    if norm is None:
        return _Norm(None, None, 0.0, 0)
    assert isinstance(norm, nn.LayerNorm | RMSNorm)
    bias = getattr(norm, "bias", None)
    kind = 2 if isinstance(norm, RMSNorm) else 1
    return _Norm(norm.weight.data_ptr(), None if bias is None else bias.data_ptr(), norm.eps, kind)


def whole_layer(block: Block, layouts: dict[str, Layout]) -> WholeLayer | None:
    """None for a layer that the kernel does not know: with cross-attention, an exact GELU, or whole-byte weights."""
    kernels = load_kernels()
    blocks = {name: layout for name, layout in layouts.items() if isinstance(layout, Blocks)}
    if kernels is None or len(blocks) < len(layouts) or block.cross is not None:
        return None
    if block.feedforward.spec.activation not in ACTIVATIONS:
        return None
    return WholeLayer(block, blocks, kernels.run)
