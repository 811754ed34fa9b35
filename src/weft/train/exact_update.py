"""AdamW and the gradient norm with the same bits for a whole weight and for its shards (`update.c`).

torch's fused AdamW treats the last elements of an array differently from the others, and its norm depends on the order
of addition. So the bits depend on where a shard ends. Here each element is updated for itself, the squares of each row
are added for themselves, in double, and the sums of all rows in one fixed order.

Without a compiler, and on other devices, the same is done by torch operations on whole arrays.
"""

import ctypes
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.compiled import are_plain, load_tried, open_library, threads
from weft.devices import widest_float
from weft.train.local import is_shard, local_part, own_rows
from weft.train.processes import Processes

_SOURCE = Path(__file__).with_name("update.c")
_POINTER, _NUMBER, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


def _library() -> ctypes.CDLL:
    found = open_library(_SOURCE)
    found.weft_row_squares.argtypes = [_POINTER, _POINTER, _NUMBER, _NUMBER, ctypes.c_int]
    found.weft_adamw.argtypes = [*[_POINTER] * 4, _NUMBER, *[_REAL] * 6, ctypes.c_int]
    for function in (found.weft_row_squares, found.weft_adamw):
        function.restype = None
    return found


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def _squares_are_right(library: ctypes.CDLL) -> bool:
    x = _numbers(3, 37)
    return torch.allclose(_compiled_squares(library, x), x.double().square().sum(1), rtol=1e-12, atol=0)


def _update_is_right(library: ctypes.CDLL) -> bool:
    sides = []
    for run in (functools.partial(_compiled_adamw, library), _adamw_by_torch):
        w, g, m, v = _numbers(4, 37).clone().unbind()
        run(w, g, m, v.abs_(), 0.1, 0.99, 0.9, 0.95, 1e-8, 0.5)
        sides.append((w, m, v))
    return all(torch.allclose(a, b, atol=1e-6, rtol=1e-5) for a, b in zip(*sides, strict=True))


@functools.cache
def load_update_kernels() -> ctypes.CDLL | None:
    return load_tried("update", _library, (_squares_are_right, _update_is_right))


def _compiled_squares(library: ctypes.CDLL, x: Tensor) -> Tensor:
    rows = x.reshape(len(x), -1)
    sums = torch.empty(len(rows), dtype=torch.float64)
    library.weft_row_squares(rows.data_ptr(), sums.data_ptr(), *rows.shape, threads())
    return sums


def _compiled_adamw(library: ctypes.CDLL, w: Tensor, g: Tensor, m: Tensor, v: Tensor, *numbers: float) -> None:
    addresses = (x.data_ptr() for x in (w, g, m, v))
    library.weft_adamw(*addresses, w.numel(), *numbers, threads())


def _adamw_by_torch(
    w: Tensor, g: Tensor, m: Tensor, v: Tensor,
    rate: float, decay: float, beta1: float, beta2: float, epsilon: float, correction: float,
) -> None:  # fmt: skip
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    w.mul_(decay).addcdiv_(m, (v.sqrt() / correction).add_(epsilon), value=-rate)


def row_squares(x: Tensor) -> Tensor:
    """The sum of the squares of each row, in double. The elements of a vector are rows."""
    if x.numel() == 0:
        return torch.zeros(len(x), dtype=widest_float(x.device), device=x.device)
    if are_plain(x) and x.is_contiguous() and (library := load_update_kernels()) is not None:
        return _compiled_squares(library, x)
    rows = x.reshape(len(x), -1).to(widest_float(x.device)).square()
    # A single row would be added up by several threads.
    return torch.cat([rows, torch.zeros_like(rows)]).sum(1)[: len(rows)] if len(rows) == 1 else rows.sum(1)


def exact_norm(gradients: Sequence[Tensor], processes: Processes) -> Tensor:
    """Of all gradients together, in double."""
    return exact_squares(gradients, processes).sqrt()


def exact_squares(gradients: Sequence[Tensor], processes: Processes) -> Tensor:
    """The sum of the squares of all gradients, in double."""
    parts = []
    for gradient in gradients:
        rows = own_rows(gradient)
        squares = torch.zeros(len(gradient), dtype=widest_float(gradient.device), device=gradient.device)
        squares[rows.start : rows.stop] = row_squares(local_part(gradient))
        parts.append(squares)
    joined = torch.cat(parts)
    if any(map(is_shard, gradients)):
        processes.sum_([joined])  # exact: each has one summand that is not zero
    # On a CPU by numpy, whose order of addition does not depend on the number of threads.
    return torch.tensor(joined.numpy().sum()) if joined.device.type == "cpu" else joined.sum()


@torch.no_grad()
def clip_gradients(gradients: Sequence[Tensor], largest: float, norm: float) -> None:
    torch._foreach_mul_([local_part(one) for one in gradients], min(1.0, largest / (norm + 1e-6)))


class ExactAdamW(Optimizer):
    """As torch's AdamW, with the same names in its state."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
                state["step"] = state["step"].cpu() + 1  # of a checkpoint it comes to the GPU, where reading it waits
                taken = float(state["step"])
                numbers = (
                    rate / (1 - beta1**taken), 1 - rate * group["weight_decay"], beta1, beta2, group["eps"],
                    math.sqrt(1 - beta2**taken),
                )  # fmt: skip
                _update([local_part(x) for x in (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])], numbers)


def _update(tensors: Sequence[Tensor], numbers: Sequence[float]) -> None:
    w, g, m, v = tensors
    if w.numel() == 0:
        return
    if are_plain(w.detach(), g, m, v) and all(x.is_contiguous() for x in tensors):
        library = load_update_kernels()
        if library is not None:
            _compiled_adamw(library, w, g, m, v, *numbers)
            return
    _adamw_by_torch(w, g, m, v, *numbers)
