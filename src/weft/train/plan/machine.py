"""Measurements of this machine: the peak speed of matrix products, and whether bfloat16 is fast."""

import time
from functools import cache

import torch

from weft.devices import check_bfloat16, has_bfloat16, synchronize

_SIDES = (512, 1024, 2048)  # which is fastest depends on the caches


@cache
def matmul_peak(device: str = "cpu", dtype: torch.dtype = torch.float32, seconds: float = 0.3) -> float:
    """FLOP/s of the fastest square product: the limit that a training step is compared with."""
    return max(_matmul_rate(side, device, dtype, seconds / len(_SIDES)) for side in _SIDES)


@cache
def has_fast_bfloat16(device: str) -> bool:
    """NVIDIA's GPUs since Ampere and CPUs with AMX have it. Many other CPUs emulate bfloat16, a hundred times slower
    than fp32. Of other devices it is not known.
    """
    if (kind := torch.device(device).type) != "cpu":
        return kind == "cuda" and has_bfloat16(device)
    can: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older versions of torch
    if can and not any(can.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16")):
        return False  # not measured: a busy machine could mislead
    return 1.5 * _least_seconds(256, torch.bfloat16) < _least_seconds(256, torch.float32)


def check_precision(section: str, precision: str | None, device: str) -> None:
    """Raises InputError if the recipe asks for a precision that the device would have to emulate."""
    if precision == "bfloat16":
        check_bfloat16(device, f"{section}.precision: bfloat16", "float32")


def _least_seconds(side: int, dtype: torch.dtype, times: int = 5) -> float:
    """Seconds of a product on the CPU. The least, not the mean: a plan must not depend on the load of the machine."""
    a, b = (torch.randn(side, side).to(dtype) for _ in range(2))
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        a @ b
        spent.append(time.perf_counter() - began)
    return min(spent)


def _matmul_rate(side: int, device: str, dtype: torch.dtype, seconds: float) -> float:
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    a @ b
    count, began = 0, _now(device)
    while (spent := _now(device) - began) < seconds or count == 0:
        a @ b
        count += 1
    return 2 * side**3 * count / spent


def _now(device: str) -> float:
    synchronize(device)
    return time.perf_counter()
