"""How tensors are stored: matrices in the chosen precision, all others in float32."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Stored
from gguf import LlamaFileType

from weft.errors import InputError

_TYPES = {
    "fp32": (Stored.F32, LlamaFileType.ALL_F32),
    "f16": (Stored.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (Stored.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (Stored.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q5_1": (Stored.Q5_1, LlamaFileType.MOSTLY_Q5_1),
    "q5_0": (Stored.Q5_0, LlamaFileType.MOSTLY_Q5_0),
    "q4_1": (Stored.Q4_1, LlamaFileType.MOSTLY_Q4_1),
    "q4_0": (Stored.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
# Tables that llama.cpp adds as they are, and classifiers, which are small and decide.
_ALWAYS_FP32 = ("position_embd", "token_types", "attn_rel_b", "rope_freqs", "cls", "cls.output")


def file_type(precision: str) -> LlamaFileType:
    return _TYPES[precision][1]


def stored_as(name: str, shape: tuple[int, ...], precision: str) -> Stored:
    """Quantized rows are blocks of 32 numbers: a matrix with other rows is stored as f16."""
    chosen = _TYPES[precision][0]
    if len(shape) < 2 or name.removesuffix(".weight").rpartition("blk.0.")[2] in _ALWAYS_FP32:
        return Stored.F32
    block, _ = gguf.GGML_QUANT_SIZES[chosen]
    return chosen if shape[-1] % block == 0 else Stored.F16


def byte_shape(shape: tuple[int, ...], stored: Stored) -> tuple[tuple[int, ...], np.dtype, int]:
    """The shape and type of the array that `to_stored` gives, and its size in bytes."""
    if stored in (Stored.F32, Stored.F16):
        kind = np.dtype(np.float32 if stored == Stored.F32 else np.float16)
        return shape, kind, int(np.prod(shape)) * kind.itemsize
    found = gguf.quant_shape_to_byte_shape(shape, stored)
    return found, np.dtype(np.uint8), int(np.prod(found))


def to_stored(name: str, values: np.ndarray, stored: Stored) -> np.ndarray:
    """Raises InputError if a value does not fit: 16-bit floats, also the scales of quantized blocks, end at 65,504."""
    largest = np.abs(values).max()
    with np.errstate(all="ignore"):
        found = gguf.quantize(values, stored)
        if largest > np.finfo(np.float16).max and not np.isfinite(gguf.dequantize(found, stored)).all():
            raise InputError(f"{name} holds {largest:.4g}, more than {stored.name} can. Use --bf16 or fp32.")
    return found
