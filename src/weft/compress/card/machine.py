"""Where the times were measured: processor, instruction set, threads, versions."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

from weft.devices import device_title
from weft.version import VERSION

_CPU_FILE = Path("/proc/cpuinfo")
# Flags of Linux -> what people call them, in the order of their age.
_INSTRUCTIONS = {
    "avx2": "avx2", "fma": "fma", "avx512f": "avx512", "avx_vnni": "avx-vnni", "avx512_vnni": "avx512-vnni",
    "avx512_bf16": "avx512-bf16", "avx512_fp16": "avx512-fp16", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
    "asimd": "neon", "asimddp": "dotprod", "i8mm": "i8mm", "sve": "sve", "bf16": "bf16",
}  # fmt: skip


def describe_cpu(listed: Path = _CPU_FILE) -> tuple[str, list[str]]:
    """The processor's name and those of its instructions that matter here, as far as the system says."""
    try:
        text = listed.read_text("utf-8", "replace")
    except OSError:  # not Linux
        return platform.processor() or platform.machine(), []
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    instructions = [said for flag, said in _INSTRUCTIONS.items() if flag in known]
    return name[1].strip() if name else platform.machine(), instructions


def machine_facts(device: torch.device) -> dict[str, Any]:
    name, instructions = describe_cpu()
    gpu = {} if device.type == "cpu" else {"gpu": device_title(device)}
    return {
        "processor": name,
        "instructions": instructions,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "weft": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
