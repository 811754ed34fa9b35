"""The same bytes in every run, on a GPU too.

On a CPU torch's operations repeat bit for bit. On CUDA some add numbers in the order in which threads happen to arrive:
cuBLAS unless it is given a fixed workspace, flash attention's backward pass, and additions by index. torch has a
deterministic version of each that training uses; they cost some time.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FIXED = (":4096:8", ":16:8")  # the ones that NVIDIA promises repeatable products for


def fix_workspace(device: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set cuBLAS's workspace, unless the user has. It is read once, before the first product on a GPU."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_initialized():
        environment.setdefault(WORKSPACE, _FIXED[0])


def why_not_repeatable(device: torch.device, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a second run may differ in the last bits; None if it does not."""
    if device.type == "mps":
        return "Apple's GPUs promise no fixed order of addition"
    if device.type == "cuda" and environment.get(WORKSPACE) not in _FIXED:
        return (
            f"{WORKSPACE} is {environment.get(WORKSPACE, 'not set')}; set it to {_FIXED[0]} before the program starts"
        )
    return None


def repeatable_lines(device: torch.device, environment: Mapping[str, str] = os.environ) -> list[str]:
    """For a run's log. Nothing for a CPU, where it goes without saying."""
    if device.type not in ("cuda", "mps"):
        return []
    if (reason := why_not_repeatable(device, environment)) is not None:
        return [f"{device}: a second run may differ in the last bits: {reason}"]
    return [f"{device}: the same bytes in every run: deterministic kernels, {WORKSPACE}={environment.get(WORKSPACE)}"]


@contextmanager
def repeatable_kernels(device: torch.device, environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Within it, torch uses deterministic kernels on this device, where that is possible."""
    if device.type != "cuda" or why_not_repeatable(device, environment) is not None:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # a pass over all new memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fills
