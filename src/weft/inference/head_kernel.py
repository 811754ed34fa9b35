"""The linear layers of a head in C: over the vocabulary they are as large as the rest of a small model."""

from typing import Any

import torch
from torch import Tensor, nn

from weft.inference.forward_kernels import ForwardKernels, multiply_rows
from weft.inference.matrices import KernelMatrix, WeightPrecision
from weft.inference.weight_watch import WeightWatch, is_plain_inference
from weft.model.quantized import QuantizedLinear

_FEW_OUTPUTS = 32  # labels: nothing to gain, so they are computed by the module


class HeadKernel:
    """Set as `Head.fast`."""

    def __init__(self, kernels: ForwardKernels, precision: WeightPrecision) -> None:
        self.kernels, self.precision = kernels, precision
        self.known: dict[nn.Module, tuple[WeightWatch, KernelMatrix]] = {}

    def __call__(self, linear: nn.Module, x: Tensor) -> Tensor | None:
        if not isinstance(linear, nn.Linear | QuantizedLinear) or not is_plain_inference(linear):
            return None
        if x.dim() != 2 or x.dtype != torch.float32 or x.device.type != "cpu":
            return None
        if linear.out_features < _FEW_OUTPUTS and isinstance(linear, nn.Linear):
            return None
        known = self.known.get(linear)
        if known is None or not known[0].is_unchanged():
            watch = WeightWatch(linear)
            if not watch.is_plain():
                return None
            known = self.known[linear] = watch, KernelMatrix(linear, self.precision)
        watch, matrix = known
        return None if watch.has_hooks() else multiply_rows(self.kernels, matrix, x)

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of a head has weights of its own, or shares them and is used in another way."""
