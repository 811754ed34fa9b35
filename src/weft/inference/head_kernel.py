"""The linear layers of a head in C: over the vocabulary they are as large as the rest of a small model."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from weft.inference.fitting import linear_fits
from weft.inference.forward_kernels import ForwardKernels, multiply_rows
from weft.inference.matrices import KernelMatrix, WeightPrecision
from weft.inference.weight_watch import WeightWatch, are_packable, is_plain_inference
from weft.model.quantized import QuantizedLinear

_FEW_OUTPUTS = 32  # labels: nothing to gain, so they are computed by the module


class HeadKernel:
    """Set as `Head.fast`."""

    def __init__(self, kernels: ForwardKernels, precision: WeightPrecision) -> None:
        self.kernels, self.precision = kernels, precision
        self.known: WeakKeyDictionary[nn.Module, tuple[WeightWatch, KernelMatrix]] = WeakKeyDictionary()

    def __call__(self, linear: nn.Module, x: Tensor) -> Tensor | None:
        if not isinstance(linear, nn.Linear | QuantizedLinear) or not is_plain_inference(linear):
            return None
        if linear.out_features < _FEW_OUTPUTS and isinstance(linear, nn.Linear):
            return None
        known = self._packed(linear) if type(x) is Tensor and x.dtype is torch.float32 and x.is_cpu else None
        if known is None:
            self.known.pop(linear, None)  # they were cast or moved: the packed weights would only take memory
            return None
        watch, matrix = known
        if watch.needs_modules() or x.dim() != 2 or x.shape[1] != matrix.depth:
            return None
        return multiply_rows(self.kernels, matrix, x)

    def _packed(self, linear: nn.Linear | QuantizedLinear) -> tuple[WeightWatch, KernelMatrix] | None:
        known = self.known.get(linear)
        if known is None or not known[0].is_unchanged():
            if not linear_fits(linear) or not are_packable(linear):
                return None
            known = self.known[linear] = WeightWatch(self.kernels, linear), KernelMatrix(linear, self.precision)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as None: a copy of a head has weights of its own, or shares them and is used in another
        way.
        """
        return type(None), ()
