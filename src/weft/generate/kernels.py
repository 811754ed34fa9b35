"""C kernels for generation, compiled on first use where there is a C compiler.

A step multiplies a few rows with every weight once, and reads every key and value once. torch's matrix product is made
for many rows: with 4 it reads memory at half of the possible speed, with 16 at less. `kernels.c` reads at full speed.
It is compiled once per machine (a second) and kept in the user's cache. A row's result is the same to the bit, however
many other rows there are. The fallback without a compiler is torch.
"""

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import torch

from weft.compiled import Kernel, load_tried, open_library, threads

_KERNEL_SOURCE = Path(__file__).with_name("kernels.c")
BLOCK_COLUMNS = 64  # as in kernels.c
MOST_ROWS = 64  # above this, torch's product is as fast


class GenerationKernels(NamedTuple):
    multiply: Kernel
    attend: Kernel
    run: Kernel


@functools.cache
def load_generation_kernels() -> GenerationKernels | None:
    return load_tried("generation", _open, (_multiplies, _attends))


def _open() -> GenerationKernels:
    found = open_library(_KERNEL_SOURCE)
    kernels = GenerationKernels(found.weft_multiply, found.weft_attend, found.weft_run)
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    strided = [pointer, number]
    kernels.multiply.argtypes = [pointer] * 4 + [number] * 3 + [flag] * 2
    kernels.attend.argtypes = [
        *strided * 3, pointer, pointer, pointer, *strided, pointer, pointer, *[number] * 9, ctypes.c_float, flag
    ]  # fmt: skip
    kernels.run.argtypes = [*[pointer] * 9, number, pointer, *[number] * 5, flag]
    for kernel in kernels:
        kernel.restype = None
    return kernels


def _multiplies(kernels: GenerationKernels) -> bool:
    """Check 1 to 14 rows, and a width that does not fill its blocks."""
    chance, depth, width, count = torch.Generator().manual_seed(0), 5, BLOCK_COLUMNS + 3, 2
    weight = torch.randn(count * BLOCK_COLUMNS, depth, generator=chance, dtype=torch.float32)
    blocks = weight.view(count, BLOCK_COLUMNS, depth).transpose(1, 2).contiguous()
    for rows in (*range(1, 15), 100):  # the last uses several threads
        x, out = (
            torch.randn(rows, depth, generator=chance, dtype=torch.float32),
            torch.ones(rows, width, dtype=torch.float32),
        )
        kernels.multiply(x.data_ptr(), blocks.data_ptr(), None, out.data_ptr(), rows, depth, width, 1, threads(2))
        if not torch.allclose(out, x @ weight[:width].T + 1, atol=1e-4):
            return False
    return True


def _attends(kernels: GenerationKernels) -> bool:
    """Check two heads that share keys. The keys begin at the third of nine columns; the last one is new."""
    chance, heads, width, columns, begin = torch.Generator().manual_seed(0), 2, 5, 9, 2
    q, new = (
        torch.randn(*shape, generator=chance, dtype=torch.float32) for shape in ((1, heads, width), (2, 1, 1, width))
    )
    keys, values = torch.randn(2, 1, 1, columns, width, generator=chance, dtype=torch.float32)
    begins, scores, out = torch.tensor([begin]), torch.empty(1, columns, dtype=torch.float32), torch.empty_like(q)
    pointers = [(tensor.data_ptr(), tensor.stride(0)) for tensor in (q, new[0], new[1])]
    kernels.attend(
        *pointers[0], *pointers[1], *pointers[2], keys.data_ptr(), values.data_ptr(), begins.data_ptr(), None, 0,
        scores.data_ptr(), out.data_ptr(), 1, 1, heads, 1, width, columns, 0, 0, columns, 0.5, threads(2),
    )  # fmt: skip
    if not (torch.equal(keys[0, 0, -1], new[0, 0, 0]) and torch.equal(values[0, 0, -1], new[1, 0, 0])):
        return False
    weights = (q[0] @ keys[0, 0, begin:].T * 0.5).softmax(-1)
    return torch.allclose(out[0], weights @ values[0, 0, begin:], atol=1e-4)
