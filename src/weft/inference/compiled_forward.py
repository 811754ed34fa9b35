"""The fast path of a network for inference on a CPU: its stacks in C, in fp32, bf16 or int8.

`compile_forward(network, precision)` gives a network that path (`Network.fast`). Weights are packed at the first batch,
and again when they have changed. The modules compute as before wherever gradients, training, other devices, hooks,
autocast or tracing are at work, with modules that the kernels do not know, and where there is no C compiler.
"""

from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from weft.compiled import why_missing
from weft.errors import InputError
from weft.inference.fitting import fits_kernel
from weft.inference.forward_kernels import ForwardKernels
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.head_kernel import HeadKernel
from weft.inference.matrices import WeightPrecision
from weft.inference.stack_kernel import StackKernel
from weft.inference.weight_watch import WeightWatch, are_packable, is_plain_inference
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
        self.precision = precision
        self.parts = network._modules  # not the network: it holds this object
        self.sides = {name: _Side(kernels, precision, half_attention=half_attention) for name in ("encoder", "decoder")}

    def stack(
        self, name: Literal["encoder", "decoder"], batch: Packed, memory: Tensor | None, source: Packed | None
    ) -> Tensor | None:
        own = self.parts.get("decoder_embed") if name == "decoder" else None
        return self.sides[name].run(own or self.parts["embed"], self.parts.get(name), batch, memory, source)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as None: a copy of a network has weights of its own, or shares them and is used in another
        way.
        """
        return type(None), ()


class _PackedStack(NamedTuple):
    """A stack with the embeddings below it, packed."""

    embed: Embeddings
    stack: Stack
    watch: WeightWatch
    kernel: StackKernel

    def is_of(self, embed: nn.Module | None, stack: nn.Module) -> bool:
        return self.embed is embed and self.stack is stack and self.watch.is_unchanged()


class _Side:
    """The encoder or the decoder."""

    def __init__(self, kernels: ForwardKernels, precision: WeightPrecision, *, half_attention: bool) -> None:
        self.kernels, self.precision, self.half_attention = kernels, precision, half_attention
        self.known: _PackedStack | None = None

    def run(
        self,
        embed: nn.Module | None,
        stack: nn.Module | None,
        batch: Packed,
        memory: Tensor | None,
        source: Packed | None,
    ) -> Tensor | None:
        if stack is None or not is_plain_inference(stack):
            return None
        known = self.known
        if known is None or not known.is_of(embed, stack):
            known = self.known = self._pack(embed, stack)
        if known is None or known.watch.needs_modules() or not known.kernel.takes(batch, memory, source):
            return None
        return known.kernel.run(batch, memory, source)

    def _pack(self, embed: nn.Module | None, stack: nn.Module) -> _PackedStack | None:
        if type(embed) is not Embeddings or type(stack) is not Stack:
            return None
        if not are_packable(embed, stack) or not fits_kernel(embed, stack):
            return None
        watch = WeightWatch(self.kernels, embed, stack)
        kernel = StackKernel(embed, stack, self.kernels, self.precision, half_attention=self.half_attention)
        return _PackedStack(embed, stack, watch, kernel)
