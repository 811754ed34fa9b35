"""Where a network computes, and what that device can do. Nothing else in weft asks what kind of GPU there is."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import torch

from weft.errors import InputError

DEVICE_VARIABLE = "WEFT_DEVICE"  # what auto means; --device sets it


def local_device(environment: Mapping[str, str] = os.environ) -> str:
    """The device of a single process: WEFT_DEVICE, or the GPU if there is one, NVIDIA's (or AMD's, which torch also
    calls cuda) before Apple's.
    """
    if (named := environment.get(DEVICE_VARIABLE, "auto")) != "auto":
        return str(checked_device(named))
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def checked_device(name: str | torch.device) -> torch.device:
    """`auto` is the GPU if there is one. Raises InputError if this machine does not have the device."""
    if name == "auto":
        return torch.device(local_device())
    try:
        found = torch.device(name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"device {str(name)!r} is not available here ({reason}). Use auto or cpu.") from None
    if found.type == "meta":
        raise InputError("device 'meta' cannot compute: its tensors have no numbers. Use auto or cpu.")
    return found


def device_of_process(wanted: str, local: int, gpus: int, environment: Mapping[str, str] = os.environ) -> str:
    """The device of one of several processes. `wanted`: auto, cpu, cuda or mps. `local`: its number on this machine,
    which has so many `gpus`.
    """
    if wanted == "auto":
        wanted = environment.get(DEVICE_VARIABLE, "auto")
    kind = ("cuda" if gpus else "cpu") if wanted == "auto" else wanted.partition(":")[0]
    if kind == "mps":
        raise InputError("processes.device: mps takes one process. Start weft without torchrun, or choose cpu.")
    if kind != "cuda":
        return checked_device(kind).type
    if gpus == 0:
        raise InputError("processes.device: this machine has no GPU for cuda. Choose cpu.")
    if local >= gpus:
        raise InputError(
            f"Process {local + 1} of this machine has no GPU of its own: there are {gpus}. Start as many processes as "
            f"GPUs (torchrun --nproc-per-node {gpus}), or set processes.device: cpu."
        )
    return f"cuda:{local}"


def synchronize(device: str) -> None:
    """Wait until the device has done all that it was asked for."""
    match torch.device(device).type:
        case "cuda":
            torch.cuda.synchronize(device)
        case "mps":
            torch.mps.synchronize()


def has_bfloat16(device: str | torch.device) -> bool:
    """Whether the device computes in bfloat16. CPUs do, though many are slow at it; NVIDIA's GPUs do since Ampere,
    Apple's since macOS 14.
    """
    match torch.device(device).type:
        case "cuda":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        case "mps":
            return torch.backends.mps.is_macos_or_newer(14, 0)
        case _:
            return True


def check_bfloat16(device: str | torch.device, setting: str, instead: str) -> None:
    """Raises InputError where bfloat16 would be emulated or fail."""
    if not has_bfloat16(device):
        needs = "macOS 14 or newer" if torch.device(device).type == "mps" else "a GPU of the Ampere generation or newer"
        raise InputError(f"{setting} needs {needs}, and {device_title(device)} is not one. Use {instead}.")


@cache
def widest_float(device: torch.device) -> torch.dtype:
    """For sums: float64, which Apple's GPUs do not have."""
    try:
        return torch.zeros((), dtype=torch.float64, device=device).dtype
    except TypeError:
        return torch.float32


@cache  # asked in every step
def memory_of(device: torch.device) -> int | None:
    """Bytes of a GPU's own memory. None: not known, or it is the memory of the CPU."""
    match device.type:
        case "cuda" if torch.cuda.is_available():  # a fake tensor needs no GPU
            return torch.cuda.get_device_properties(device).total_memory
        case "mps" if torch.backends.mps.is_available():
            return torch.mps.recommended_max_memory()
        case _:
            return None


def has_flash_attention(device: torch.device) -> bool:
    """Whether the GPU can run flash attention: NVIDIA's since Ampere. A fake tensor's device is taken for a new one."""
    if not torch.cuda.is_available():
        return True
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


def device_title(device: str | torch.device) -> str:
    """As people call it: NVIDIA A100-SXM4-40GB."""
    kind = torch.device(device).type
    with suppress(RuntimeError, AssertionError):  # a driver that cannot be asked
        if kind == "cuda":
            return torch.cuda.get_device_name(device)
    return "this Apple GPU" if kind == "mps" else str(device)


def all_devices() -> list[str]:
    """The CPU and the GPUs of this machine, by title."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *(["Apple GPU (mps)"] if torch.backends.mps.is_available() else [])]
