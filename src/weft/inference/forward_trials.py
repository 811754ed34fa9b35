"""The forward kernels, tested once per process on small stacks before they are used."""

import functools

import torch
from torch import Tensor

from weft.compiled import load_tried, why_missing
from weft.inference.forward_kernels import ForwardKernels, open_forward_kernels
from weft.inference.matrices import WeightPrecision
from weft.inference.stack_kernel import StackKernel
from weft.model.attention import AttentionSpec
from weft.model.block import BlockSpec
from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.feedforward import FeedForwardSpec
from weft.model.norm import NormSpec
from weft.model.packed import Packed, pack
from weft.model.positions import Learned, Positions, Relative, Rotary
from weft.model.stack import Stack, StackSpec

_WIDTH, _VOCABULARY = 40, 30
_LENGTHS = (21, 1, 7)
_ERRORS: dict[WeightPrecision, float] = {"fp32": 1e-5, "bf16": 0.05, "int8": 0.2}  # relative


@functools.cache
def load_forward_kernels() -> ForwardKernels | None:
    return load_tried("inference", open_forward_kernels, (_encodes, _decodes, _decodes_with_source))


def missing_forward_kernels() -> dict[str, str | None]:
    """Why the forward kernels are not used on this machine; None if they are."""
    load_forward_kernels()
    return {"inference": why_missing("inference")}


def _encodes(kernels: ForwardKernels) -> bool:
    block = BlockSpec(AttentionSpec(2, 20, 2), FeedForwardSpec(70, "gelu"), NormSpec(), "post")
    return _is_right(kernels, StackSpec((block, block)), Learned(32))


def _decodes(kernels: ForwardKernels) -> bool:
    attention = AttentionSpec(4, 8, 2, bias=False, head_norm=NormSpec("rms"))
    block = BlockSpec(attention, FeedForwardSpec(70, "silu", gated=True, bias=False), NormSpec("rms"), "pre")
    return _is_right(kernels, StackSpec((block, block), causal=True, final_norm=True), Rotary(32))


def _decodes_with_source(kernels: ForwardKernels) -> bool:
    block = BlockSpec(AttentionSpec(2, 20, 2, scaled=False), FeedForwardSpec(30, "relu"), NormSpec("rms"), "pre")
    return _is_right(kernels, StackSpec((block,), causal=True, cross=True, final_norm=True), Relative())


@torch.no_grad()
def _is_right(kernels: ForwardKernels, spec: StackSpec, positions: Positions) -> bool:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        embeddings = Embeddings(EmbeddingSpec(_VOCABULARY, _WIDTH, positions)).float().eval()
        stack = Stack(spec, _WIDTH, positions).float().eval()
        batch, source = (pack([torch.randint(_VOCABULARY, (n,)).numpy() for n in _LENGTHS]) for _ in range(2))
        memory = torch.randn(len(source.tokens), _WIDTH) if spec.cross else None
    given = (memory, source) if spec.cross else (None, None)
    expected = stack(embeddings(batch), batch, *given)
    kinds = [kind for kind in _ERRORS if kind != "bf16" or kernels.has_bfloat()]
    return all(_is_near(kernels, embeddings, stack, kind, batch, given, expected) for kind in kinds)


def _is_near(
    kernels: ForwardKernels,
    embeddings: Embeddings,
    stack: Stack,
    precision: WeightPrecision,
    batch: Packed,
    given: tuple[Tensor | None, Packed | None],
    expected: Tensor,
) -> bool:
    kernel = StackKernel(embeddings, stack, kernels, precision, half_attention=precision != "fp32")
    found = kernel.run(batch, *given)
    return found is not None and bool((found - expected).norm() <= _ERRORS[precision] * expected.norm())
