"""Which C kernels a network uses, and why not the others: without them training is slower."""

from torch import device as Device
from torch import dtype as DType
from torch import float32

from weft.compiled import why_missing
from weft.model.fused_attention import load_attention_kernels, register_width
from weft.model.fused_layers import load_layer_kernels
from weft.model.gpu_attention import why_not_varlen
from weft.model.network import Network

_KERNEL_NAMES = ("attention", "layers")


def lost_kernels(network: Network) -> dict[str, str]:
    """The kernels this network cannot use, each with the reason."""
    weight = next(network.parameters())
    if (reason := _tensor_reason(weight.device, weight.dtype)) is not None:
        return dict.fromkeys(_KERNEL_NAMES, reason)
    lost = {name: reason for name, reason in missing_kernels().items() if reason is not None}
    if "attention" not in lost and (reason := _attention_reason(network)) is not None:
        lost["attention"] = reason
    return lost


def kernel_lines(network: Network, precision: DType = float32) -> list[str]:
    """A line per kernel, for a run's log. `precision`: of matrix products."""
    if next(network.parameters()).device.type != "cpu":
        return _gpu_lines(network, precision)
    lost = lost_kernels(network)
    return [f"kernel {name}: {f'not used: {lost[name]}' if name in lost else 'in use'}" for name in _KERNEL_NAMES]


def _gpu_lines(network: Network, precision: DType) -> list[str]:
    weight, lines = next(network.parameters()), list[str]()
    for name, stack in (("encoder", network.encoder), ("decoder", network.decoder)):
        if stack is None:
            continue
        spec = stack.spec.blocks[0].attention
        reason = why_not_varlen(
            weight,
            precision,
            spec.head_width,
            is_biased=stack.relative is not None,
            dropout=spec.dropout * network.training,
        )
        how = "the kernel for variable lengths" if reason is None else f"padded, not by variable lengths: {reason}"
        lines.append(f"attention of the {name} on {weight.device}: {how}")
    return lines


def missing_kernels() -> dict[str, str | None]:
    """Why each kernel is not available on this machine. None: it is."""
    load_attention_kernels(), load_layer_kernels()
    return {name: why_missing(name) for name in _KERNEL_NAMES}


def _tensor_reason(device: Device, dtype: DType) -> str | None:
    if device.type != "cpu":
        return f"it needs a CPU; the weights are on {device.type}"
    return None if dtype == float32 else f"it needs fp32; the weights are {str(dtype).removeprefix('torch.')}"


def _attention_reason(network: Network) -> str | None:
    stacks = [stack for stack in (network.encoder, network.decoder) if stack is not None]
    if not stacks:
        return "this network has no attention"
    if any(stack.relative is not None for stack in stacks):
        return "it does not support the bias of relative positions"
    wide = register_width()
    widths = {block.attention.head_width for stack in stacks for block in stack.spec.blocks}
    unfit = sorted(width for width in widths if width % wide)
    return f"the head width, {unfit[0]}, is not a multiple of {wide}" if unfit else None
