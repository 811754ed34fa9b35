"""A decoder layer described to `kernels.c`, which runs all of it in one call."""

import ctypes
import functools
from ctypes import c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor, nn

from weft.compiled import Kernel, KernelsMissing, load_tried, why_missing
from weft.generate.kernels import GenerationKernels, load_generation_kernels
from weft.generate.layouts import BlockedLayout, Layout
from weft.model.attention import AttentionSpec, View
from weft.model.block import Block, BlockSpec
from weft.model.feedforward import FeedForwardSpec
from weft.model.norm import NormSpec, RMSNorm
from weft.model.packed import pack
from weft.model.positions import Rotary, rotary_table

_ACTIVATION_CODES = {"relu": 0, "relu-squared": 1, "silu": 2, "gelu-tanh": 3}  # exact GELU has no fast formula


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


class LayerKernel:
    """The C struct, and the tensors whose addresses it holds."""

    def __init__(self, block: Block, layouts: dict[str, BlockedLayout], kernel: Kernel) -> None:
        attention, feedforward = block.attention.spec, block.feedforward.spec
        norms = {
            "attention_norm": block.attention_norm,
            "query_norm": block.attention.query_norm,
            "key_norm": block.attention.key_norm,
            "feedforward_norm": block.feedforward_norm,
        }
        # Detached, so that the memory stays alive even if the module's parameters are replaced.
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
            activation=_ACTIVATION_CODES[feedforward.activation],
        )
        self.address = ctypes.addressof(self.layer)
        wide = layouts["qkv"].width + layouts["out"].depth + layouts["up"].width
        self.work_per_row = layouts["qkv"].depth + wide  # floats of scratch memory


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


def layer_kernel_for(block: Block, layouts: dict[str, Layout]) -> LayerKernel | None:
    """None for a layer that the kernel does not support: with cross-attention, exact GELU, int8 or half-precision
    weights.
    """
    kernels = load_generation_kernels()
    blocks = {name: layout for name, layout in layouts.items() if isinstance(layout, BlockedLayout)}
    if kernels is None or len(blocks) < len(layouts) or block.cross is not None:
        return None
    if block.feedforward.spec.activation not in _ACTIVATION_CODES or not _runs_right():
        return None
    if any(parameter.dtype != torch.float32 for parameter in block.parameters()):
        return None
    return LayerKernel(block, blocks, kernels.run)


def missing_generation_kernels() -> dict[str, str | None]:
    """Why each generation kernel is not used on this machine; None if it is used."""
    load_generation_kernels(), _runs_right()
    return {name: why_missing(name) for name in ("generation", "generation layers")}


@functools.cache
def _runs_right() -> bool:
    """Tests the kernel on small layers once. The reason for a failure is kept."""
    return load_tried("generation layers", _kernels_of_layers, (_pre_norm, _post_norm)) is not None


def _kernels_of_layers() -> GenerationKernels:
    kernels = load_generation_kernels()
    if kernels is None:
        raise KernelsMissing(str(why_missing("generation")))
    return kernels


def _pre_norm(kernels: GenerationKernels) -> bool:
    """Grouped-query attention with head norms, rotary positions and a window of two; a gated feed-forward layer."""
    attention = AttentionSpec(2, 4, 1, head_norm=NormSpec("rms"))
    spec = BlockSpec(attention, FeedForwardSpec(6, "silu", gated=True), NormSpec("rms"), "pre")
    return _is_right(kernels, spec, Rotary(10), window=2)


def _post_norm(kernels: GenerationKernels) -> bool:
    return _is_right(kernels, BlockSpec(AttentionSpec(2, 4, 2), FeedForwardSpec(6, "relu"), NormSpec(), "post"))


@torch.no_grad()
def _is_right(
    kernels: GenerationKernels, spec: BlockSpec, rotary: Rotary | None = None, window: int | None = None
) -> bool:
    """Two sequences token by token, the second from the second column on, give what the block gives all at once."""
    lengths, columns, width, head_width = (5, 4), 5, 8, spec.attention.head_width
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        block = Block(spec, width, attention_norm=True).float()
        given = torch.randn(len(lengths), columns, width, dtype=torch.float32)
    parts = {"qkv": block.attention.qkv, "out": block.attention.out}
    parts |= {"up": block.feedforward.up, "down": block.feedforward.down}
    whole = LayerKernel(
        block, {name: BlockedLayout(part, kernels.multiply) for name, part in parts.items()}, kernels.run
    )
    batch = pack([[0] * length for length in lengths])
    begins = torch.tensor([columns - length for length in lengths])

    def table(positions: Tensor) -> tuple[Tensor, Tensor] | None:
        return None if rotary is None else rotary_table(rotary, positions, head_width, torch.float32)

    view = View(causal=True, window=window, rotary=table(batch.positions))
    expected = batch.split(block(torch.cat([given[0], given[1, 1:]]), batch, view))
    shared = len(lengths), spec.attention.key_value_heads
    keys, values = torch.zeros(2, *shared, columns, head_width, dtype=torch.float32)
    scores = torch.empty(shared[0] * shared[1], columns, dtype=torch.float32)
    work = torch.empty(len(lengths) * whole.work_per_row, dtype=torch.float32)
    for column in range(columns):
        x, angles = given[:, column].contiguous(), table((column - begins).clamp(min=0)) or (None, None)
        low = 0 if window is None else max(0, column - window)
        kernels.run(
            whole.address, x.data_ptr(), work.data_ptr(), *map(_place, angles), keys.data_ptr(), values.data_ptr(),
            begins.data_ptr(), None, 0, scores.data_ptr(), len(lengths), columns, 0, low, column + 1, 1,
        )  # fmt: skip
        if not torch.allclose(x[0], expected[0][column], atol=1e-4):
            return False
        if column and not torch.allclose(x[1], expected[1][column - 1], atol=1e-4):  # it begins at the second column
            return False
    return True


def _place(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
