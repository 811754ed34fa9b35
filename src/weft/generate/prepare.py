"""A network made ready to write: the same modules and weights, its linear layers laid out for few rows at a time.

A step multiplies a handful of rows with every weight of the model once, so it takes as long as the weights take to
come from memory. On CPU two layouts help:

    columns   the matrix stored (in, out). From (out, in), where torch keeps it, MKL gets through 16 rows two to three
              times slower, and through a vocabulary of 16,000 at 4 rows three times.
    int8      weights as whole numbers from −127 to 127 with a scale for each output, inputs rounded the same way as
              they come (dynamic quantization): a quarter of the bytes.

On a GPU the layers stay as they are.
"""

import copy
import warnings

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.model.network import Network


class Columns(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.columns, self.bias = linear.weight.detach().T.contiguous(), linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.columns if self.bias is None else torch.addmm(self.bias, x, self.columns)


class Int8(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_(min=1e-12) / 127
        zero = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch is moving these names, not what they do
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(rounded, linear.bias)
        # Without VNNI the products of two whole bytes overflow 16 bits; seven bits of the input do not.
        self.narrow = not torch.cpu._is_vnni_supported()

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, self.narrow)


def prepare(network: Network, *, int8: bool = False) -> Network:
    """Shares every parameter with `network` but those of its linear layers."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if int8 and not (on_cpu and torch.backends.quantized.engine not in (None, "none")):
        raise InputError("int8 weights need a CPU, and a torch that was built with quantized kernels.")
    if not on_cpu:
        return network
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    ready = copy.deepcopy(network, shared)
    layout = Int8 if int8 else Columns
    for module in list(ready.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, layout(child))
    return ready.eval()


def state_of(network: Network) -> tuple[tuple[int, int], ...]:
    """Changes when a weight does."""
    return tuple((parameter.data_ptr(), parameter._version) for parameter in network.parameters())
