"""torchao's layout of quantized matrices in safetensors files (torchao 0.18), written and read without torchao.

A matrix `x.weight` is stored as `x._weight_qdata`, `x._weight_scale` and `x._weight_zero_point`. The header of the file
describes it in JSON under the key `x.weight`, and lists all names under `tensor_names`. Zero points are always 0 here.

    Int8Tensor                  8 bits, a scale per output; products quantize their input, too, with a scale per row
    Int4Tensor                  4 bits in groups, two values per byte (the even input in the low half); scales and zero
                                points transposed. torchao computes with it on CUDA GPUs only
    IntxUnpackedToInt8Tensor    4 bits in groups, one value per byte. The one 4-bit layout that torchao runs on a CPU

transformers takes from the header what a matrix is; `quantization_config` in config.json says that it is torchao's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.errors import FolderError
from weft.interchange.tensor_files import FLOAT_TYPES, TensorFiles
from weft.model.quantized import QuantizedEmbedding, QuantizedLinear, QuantizedWeight
from weft.progress import say

NAMES = "tensor_names"
_PLAIN = {"_type": "Tensor"}
_FLOAT32 = {"_type": "torch.dtype", "_data": "float32"}
_SYMMETRIC = {"_type": "MappingType", "_data": "SYMMETRIC"}
_PER_ROW = {"_type": "PerRow", "_data": {"dim": -1}}
_INPUT_KIND = {
    "_type": "QuantizeTensorToInt8Kwargs",
    "_data": {"granularity": _PER_ROW, "mapping_type": _SYMMETRIC, "reduce_range": False},
}
_PARTS = ("qdata", "scale", "zero_point")
_STORED_AS = {"Int8Tensor": ("I8",), "IntxUnpackedToInt8Tensor": ("I8",), "Int4Tensor": ("I8", "U8")}


def encoded_file(
    tensors: Mapping[str, Tensor], matrices: Mapping[str, QuantizedWeight], *, packed: bool
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file and its header, given the plain tensors and the quantized matrices by name.

    `packed`: 4 bits as two values per byte.
    """
    if not matrices:
        return dict(tensors), {}
    stored, kinds = dict(tensors), dict.fromkeys(tensors, _PLAIN)
    for name, weight in matrices.items():
        parts, kinds[name] = _encoded(name, weight, packed=packed)
        stored |= parts
    known = {name: json.dumps(kind) for name, kind in kinds.items() if "." in name}  # torchao splits names at the dot
    return stored, {**known, NAMES: json.dumps(list(known))}


def _encoded(name: str, weight: QuantizedWeight, *, packed: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The stored tensors of a matrix, and its description for the header."""
    values, scales = weight.values.cpu().contiguous(), weight.scales.cpu().contiguous()
    zeros = torch.zeros(scales.shape, dtype=torch.int8)
    data: dict[str, Any] = {"block_size": [1, weight.group]}
    if weight.bits == 8:
        kind, order = "Int8Tensor", ["zero_point", "qdata", "scale"]
        data = {"act_quant_kwargs": _INPUT_KIND, "reduce_range": False, **data, "dtype": _FLOAT32}
    elif packed:
        kind, order = "Int4Tensor", list(_PARTS)
        data |= {"shape": list(values.shape), "activation_dtype": {"_type": "torch.dtype", "_data": "bfloat16"}}
        half = scales.bfloat16()  # torchao's kernel takes bf16; weft's 4-bit scales are such numbers
        values, scales = pack_pairs(values), (half if torch.equal(half.float(), scales) else scales).T.contiguous()
        zeros = torch.zeros_like(scales)
    else:
        kind, order = "IntxUnpackedToInt8Tensor", list(_PARTS)
        target = {"target_dtype": {"_type": "torch.dtype", "_data": "int4"}}
        data = {**target, **data, "dtype": _FLOAT32, "activation_quantization": None}
    tensors = dict(zip(_stored_names(name), (values, scales, zeros), strict=True))
    return tensors, {"_type": kind, "_data": data, "_tensor_data_names": order}


def quantization_config(layers: Iterable[QuantizedLinear | QuantizedEmbedding], *, packed: bool) -> dict[str, Any]:
    """For config.json: of 4-bit matrices, if there are any."""
    weights = [layer.quantized for layer in layers]
    group = max((weight.group for weight in weights if weight.bits == 4), default=None)
    if group is None:
        settings: dict[str, Any] = {
            "act_mapping_type": _SYMMETRIC,
            "granularity": {**_PER_ROW, "_version": 1},
            "reduce_range": False,
            "set_inductor_config": True,
            "weight_only_decode": False,
        }
        kind = "Int8DynamicActivationInt8WeightConfig"
    elif packed:
        settings = {"group_size": group, "int4_packing_format": {"_type": "Int4PackingFormat", "_data": "PLAIN"}}
        kind = "Int4WeightOnlyConfig"
    else:
        settings = {
            "granularity": {"_type": "PerGroup", "_data": {"group_size": group}, "_version": 1},
            "mapping_type": _SYMMETRIC,
            "weight_dtype": {"_type": "torch.dtype", "_data": "int4"},
        }
        kind = "IntxWeightOnlyConfig"
    return {
        "include_input_output_embeddings": True,
        "modules_to_not_convert": None,
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": kind, "_version": 2, "_data": settings}},
        "untie_embedding_weights": False,
    }


def is_packed(config: Mapping[str, Any]) -> bool:
    """Whether a config.json asks for two 4-bit values per byte, which is the default."""
    return "IntxWeightOnlyConfig" not in json.dumps(config.get("quantization_config"))


def pack_pairs(values: Tensor) -> Tensor:
    """(rows, columns) from −8 to 7 -> (rows, columns / 2) int8: the even column in the low half of a byte."""
    low, high = values[:, ::2] & 0xF, values[:, 1::2] << 4
    return (low | high).contiguous()


def unpack_pairs(stored: Tensor) -> Tensor:
    signed = stored.view(torch.int8)
    return torch.stack([(signed << 4) >> 4, signed >> 4], dim=-1).flatten(1)


@dataclass(frozen=True)
class StoredMatrix:
    """How a quantized matrix is stored, as its header says."""

    kind: str
    shape: tuple[int, int]
    bits: int
    group: int


class QuantizedFiles:
    """The tensors of a folder by name, where a quantized matrix is one tensor. The same interface as `TensorFiles`."""

    def __init__(self, files: TensorFiles) -> None:
        self._files = files
        self.matrices = {name: _read_matrix(name, described, files) for name, described in _described(files).items()}
        parts = {part for name in self.matrices for part in _stored_names(name)}
        self.shapes: dict[str, tuple[int, ...]] = {
            name: shape for name, shape in files.shapes.items() if name not in parts
        }
        for name, matrix in self.matrices.items():
            if name in self.shapes:
                raise FolderError(f"The weights hold {name} twice, quantized and not.")
            self.shapes[name] = matrix.shape

    def stored_as(self, name: str) -> str:
        """The type of what `get` gives."""
        return "F32" if name in self.matrices else self._files.stored_as(name)

    def get(self, name: str) -> Tensor:
        return self.get_quantized(name).dequantized() if name in self.matrices else self._files.get(name)

    def get_quantized(self, name: str) -> QuantizedWeight:
        """Raises FolderError for values that the description does not allow."""
        matrix = self.matrices[name]
        values, scales, zeros = map(self._part, _stored_names(name))
        if zeros is not None and zeros.any():
            raise FolderError(f"{name} has zero points other than 0; weft reads symmetric quantization only.")
        if matrix.kind == "Int4Tensor":
            values, scales = unpack_pairs(values), scales.T
        lowest, highest = (int(values.min()), int(values.max())) if values.numel() else (0, 0)
        if matrix.bits == 4 and (lowest < -8 or highest > 7):
            raise FolderError(f"{name} holds values from {lowest} to {highest}; 4 bits reach from -8 to 7.")
        scales = scales.float().reshape(matrix.shape[0], -1).contiguous()
        if not (torch.isfinite(scales).all() and (scales >= 0).all()):
            raise FolderError(f"{name} has scales that are negative, infinite or NaN.")
        if lowest < -127:
            say(f"{name}: {int((values < -127).sum()):,} values of -128 are read as -127.")
            values = values.clamp(min=-127)
        return QuantizedWeight(values.contiguous(), scales, matrix.bits)

    def _part(self, stored: str) -> Tensor:
        # Int8Tensor may leave its zero points out.
        return self._files.get(stored) if stored in self._files.shapes else torch.zeros(0)


def _stored_names(name: str) -> list[str]:
    """Of a matrix's parts: `x._weight_qdata` … for `x.weight`."""
    module, _, last = name.rpartition(".")
    return [f"{module}._{last}_{part}" for part in _PARTS]


def _described(files: TensorFiles) -> dict[str, dict[str, Any]]:
    """The header's descriptions of quantized matrices, by name. Raises FolderError if they are not as torchao's."""
    if NAMES not in files.metadata:
        return {}
    found: dict[str, dict[str, Any]] = {}
    try:
        for name in json.loads(files.metadata[NAMES]):
            described = json.loads(files.metadata[name])
            if described != _PLAIN:
                found[name] = {"_type": described["_type"], **described["_data"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FolderError(
            f"The header of the weights does not describe its quantized matrices as torchao does ({error!r})."
        ) from error
    return found


def _read_matrix(name: str, described: dict[str, Any], files: TensorFiles) -> StoredMatrix:
    kind = str(described["_type"])
    if kind not in _STORED_AS:
        raise FolderError(f"{name} is quantized as {kind}, which weft does not read. It reads {', '.join(_STORED_AS)}.")
    names = _stored_names(name)
    for part, stored in zip(_PARTS, names, strict=True):
        if stored not in files.shapes and (kind, part) != ("Int8Tensor", "zero_point"):
            raise FolderError(f"The weights lack {stored}.")
        allowed = {"qdata": _STORED_AS[kind], "scale": tuple(FLOAT_TYPES), "zero_point": ("I8", *FLOAT_TYPES)}[part]
        if stored in files.shapes and (found := files.stored_as(stored)) not in allowed:
            raise FolderError(f"{stored} is stored as {found}, not as {' or '.join(sorted(allowed))}.")
    stored_shape = files.shapes[names[0]]
    if len(stored_shape) != 2:
        raise FolderError(f"{name} is quantized, but it has {len(stored_shape)} dimensions; matrices have 2.")
    rows, columns = stored_shape[0], stored_shape[1] * (2 if kind == "Int4Tensor" else 1)
    bits = _bits(name, kind, described)
    group = _group(name, described.get("block_size"), columns, bits)
    scales = (rows, columns // group)
    for stored in names[1:]:
        wanted = scales[::-1] if kind == "Int4Tensor" else scales
        if stored in files.shapes and files.shapes[stored] != wanted:
            raise FolderError(f"{stored} has shape {files.shapes[stored]}; its matrix makes it {wanted}.")
    return StoredMatrix(kind, (rows, columns), bits, group)


def _bits(name: str, kind: str, described: dict[str, Any]) -> int:
    if kind != "IntxUnpackedToInt8Tensor":
        return 4 if kind == "Int4Tensor" else 8
    target = described.get("target_dtype")
    bits = {"int8": 8, "int4": 4}.get(str(target.get("_data") if isinstance(target, dict) else target))
    if bits is None:
        raise FolderError(f"{name} is quantized to {target}; weft reads int8 and int4.")
    return bits


def _group(name: str, block: Any, columns: int, bits: int) -> int:
    is_pair = isinstance(block, list) and len(block) == 2 and all(type(size) is int for size in block)
    if not is_pair or block[0] != 1 or block[1] < 1 or columns % block[1] or (bits == 8 and block[1] != columns):
        wanted = f"[1, {columns}]" if bits == 8 else f"[1, a divisor of {columns}]"
        raise FolderError(f"{name} has the block size {block}; weft reads {wanted}.")
    return block[1]
