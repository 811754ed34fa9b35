"""The fast path of a network for inference on a CPU: its stacks in C, in fp32, bf16 or int8.

`compile_forward(network, precision)` gives a network that path (`Network.fast`). Weights are packed at the first batch,
and again when they have changed. The modules compute as before wherever gradients, training, other devices, hooks,
autocast or tracing are at work, and where there is no C compiler.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.compiled import why_missing
from weft.errors import InputError
from weft.inference.forward_kernels import ForwardKernels
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.head_kernel import HeadKernel
from weft.inference.matrices import WeightPrecision
from weft.inference.stack_kernel import StackKernel
from weft.inference.weight_watch import WeightWatch, is_plain_inference
from weft.model.embeddings import Embeddings
from weft.model.network import Network
from weft.model.packed import Packed
from weft.model.quantized import QuantizedLinear
from weft.model.stack import Stack


def compile_forward(network: Network, precision: WeightPrecision) -> None:
    """Raises InputError if this machine lacks what the precision needs. In a network that is stored in int8, layers
    that were left in fp32 stay so.
    """
    kernels = load_forward_kernels()
    if kernels is None:
        if precision != "fp32" and not (precision == "int8" and is_quantized(network)):
            reason = why_missing("inference")
            raise InputError(f"{precision} needs C kernels, which are missing here: {reason}. Use fp32.")
        return
    if precision == "bf16" and not kernels.has_bfloat():
        raise InputError("This processor does not multiply bf16 numbers. Use fp32 or int8.")
    matrices: WeightPrecision = "fp32" if precision == "int8" and is_quantized(network) else precision
    network.fast = CompiledForward(network, kernels, matrices, half_attention=precision != "fp32")
    for kind in network.heads:
        network.head(kind).fast = HeadKernel(kernels, matrices)


def is_quantized(network: nn.Module) -> bool:
    return any(isinstance(part, QuantizedLinear) for part in network.modules())


class CompiledForward:
    """Set as `Network.fast`."""

    def __init__(
        self, network: Network, kernels: ForwardKernels, precision: WeightPrecision, *, half_attention: bool
    ) -> None:
        self.sides = {
            name: _Side(embed, stack, kernels, precision, half_attention=half_attention)
            for name, embed, stack in (
                ("encoder", network.embed, network.encoder),
                ("decoder", network.decoder_embed or network.embed, network.decoder),
            )
            if stack is not None
        }

    def stack(
        self, name: Literal["encoder", "decoder"], batch: Packed, memory: Tensor | None, source: Packed | None
    ) -> Tensor | None:
        return self.sides[name].run(batch, memory, source)

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of a network has weights of its own, or shares them and is used in another way."""


class _Side:
    """A stack with the embeddings below it."""

    def __init__(
        self,
        embed: Embeddings,
        stack: Stack,
        kernels: ForwardKernels,
        precision: WeightPrecision,
        *,
        half_attention: bool,
    ) -> None:
        self.embed, self.stack, self.kernels, self.precision = embed, stack, kernels, precision
        self.half_attention = half_attention
        self.known: tuple[WeightWatch, StackKernel] | None = None

    def run(self, batch: Packed, memory: Tensor | None, source: Packed | None) -> Tensor | None:
        if not is_plain_inference(self.stack) or not _is_plain_batch(batch, memory):
            return None
        if self.known is None or not self.known[0].is_unchanged():
            watch = WeightWatch(self.embed, self.stack)
            if not watch.is_plain():
                return None
            built = StackKernel(
                self.embed, self.stack, self.kernels, self.precision, half_attention=self.half_attention
            )
            self.known = watch, built
        watch, kernel = self.known
        return None if watch.has_hooks() else kernel.run(batch, memory, source)


def _is_plain_batch(batch: Packed, memory: Tensor | None) -> bool:
    if type(batch.tokens) is not Tensor or batch.tokens.device.type != "cpu" or batch.tokens.dtype != torch.int64:
        return False
    return memory is None or (memory.dtype == torch.float32 and memory.device.type == "cpu" and memory.is_contiguous())
