"""A GGUF file, read strictly: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

A file may come from anywhere, so nothing in it is believed. Every length is compared with what is left of the file
before anything is read or allocated, and every error is a FolderError that names the file. It is read, not mapped into
memory: a mapped file that somebody shortens meanwhile ends the process.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Stored

from weft.errors import FolderError, not_found

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_MOST_NAME, _MOST_DIMENSIONS, _MOST_ALIGNMENT = 65_535, 4, 2**20
_STRING, _ARRAY, _BOOL = 8, 9, 7
# Number types by code: how struct reads them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class StoredTensor:
    shape: tuple[int, ...]  # (out, in), as numpy has it
    stored: Stored
    start: int  # byte in the file
    size: int  # in bytes


class GgufSource:
    """`values`: the settings by key. `tensors`: where each tensor is, by name. Both are checked against the size.
    `with GgufSource(path) as source:` closes the file at the end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _opened(path)
        self._size = os.fstat(self._file.fileno()).st_size
        self._at = 0
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, StoredTensor] = {}
        try:
            self._read()
        except (struct.error, UnicodeDecodeError, OverflowError, ValueError) as error:
            self._file.close()
            raise FolderError(f"{path} is damaged at byte {self._at:,}: {error}.") from None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "GgufSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def refuse(self, why: str) -> NoReturn:
        raise FolderError(f"{self.path}: {why}")

    def get(self, name: str) -> np.ndarray:
        """A tensor in float32."""
        known, raw = self.tensors[name], self.stored_bytes(name)
        try:
            with np.errstate(all="ignore"):
                found = gguf.dequantize(_as_stored(raw, known), known.stored)
        except NotImplementedError:
            self.refuse(f"{name} is stored as {known.stored.name}, which cannot be read. Convert it to Q8_0 or F16.")
        if not np.isfinite(found).all():
            self.refuse(f"{name} holds NaN or infinity.")
        return found.reshape(known.shape)

    def stored_bytes(self, name: str) -> np.ndarray:
        """A tensor as the file has it."""
        known = self.tensors[name]
        self._file.seek(known.start)
        return np.frombuffer(self._read_on(known.size), np.uint8)

    def same_bytes(self, first: str, second: str) -> bool:
        one, other = self.tensors[first], self.tensors[second]
        if (one.shape, one.stored, one.size) != (other.shape, other.stored, other.size):
            return False
        return bool(np.array_equal(self.stored_bytes(first), self.stored_bytes(second)))

    @property
    def _left(self) -> int:
        return self._size - self._at

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= self._left:
            raise ValueError(f"it needs {count:,} bytes more, and {self._left:,} are left")
        self._at += count
        return self._read_on(count)

    def _read_on(self, count: int) -> bytes:
        try:
            found = self._file.read(count)
        except OSError as error:
            raise FolderError(f"{self.path} cannot be read: {error.strerror or error}.") from None
        if len(found) != count:
            self.refuse("it was shortened while it was read. Try again when it is complete.")
        return found

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))[0]

    def _count(self, least: int) -> int:
        """A number of things that take at least so many bytes each."""
        count = self._number("Q")
        if count * least > self._left:
            raise ValueError(f"it announces {count:,} items, for which the file is too short")
        return count

    def _string(self) -> str:
        return self._take(self._count(1)).decode("utf-8")

    def _name(self) -> str:
        if (length := self._count(1)) > _MOST_NAME:
            raise ValueError(f"a name is {length:,} bytes long")
        return self._take(length).decode("utf-8")

    def _read(self) -> None:
        if self._take(min(4, self._left)) != _MAGIC:
            self.refuse("this is not a GGUF file: it does not begin with GGUF.")
        version = self._number("I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
            why = "its numbers are big-endian" if swapped else f"its version is {version}"
            self.refuse(f"{why}; versions 2 and 3, little-endian, can be read.")
        tensors, values = self._number("Q"), self._number("Q")
        if tensors * 24 + values * 13 > self._left:
            raise ValueError(f"it announces {tensors:,} tensors and {values:,} settings, for which it is too short")
        for _ in range(values):
            key = self._name()
            if key in self.values:
                raise ValueError(f"{key!r} occurs twice")
            self.values[key] = self._value(self._number("I"))
        infos = dict[str, tuple[tuple[int, ...], int, int]]()
        for _ in range(tensors):
            name = self._name()
            if name in infos:
                raise ValueError(f"the tensor {name!r} occurs twice")
            infos[name] = self._tensor_info(name)
        self._place(infos)

    def _value(self, kind: int, *, inside: bool = False) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._flag() if kind == _BOOL else self._number(_NUMBERS[kind])
        if kind != _ARRAY or inside:
            raise ValueError(f"a setting has the unknown type {kind}")
        kind = self._number("I")
        if kind in _NUMBERS and kind != _BOOL:
            size = struct.calcsize(f"<{_NUMBERS[kind]}")
            return np.frombuffer(self._take(self._count(size) * size), f"<{_NUMBERS[kind]}").tolist()
        return [self._value(kind, inside=True) for _ in range(self._count(8 if kind == _STRING else 1))]

    def _flag(self) -> bool:
        if (found := self._number("B")) > 1:
            raise ValueError(f"a flag is {found}, neither 0 nor 1")
        return bool(found)

    def _tensor_info(self, name: str) -> tuple[tuple[int, ...], int, int]:
        dimensions = self._number("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"the tensor {name!r} has {dimensions:,} dimensions")
        shape = tuple(reversed([self._number("Q") for _ in range(dimensions)]))
        return shape, self._number("I"), self._number("Q")

    def _place(self, infos: dict[str, tuple[tuple[int, ...], int, int]]) -> None:
        alignment = self.values.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= _MOST_ALIGNMENT or alignment & (alignment - 1):
            raise ValueError(f"general.alignment is {alignment!r}, which is not a power of two")
        start, end, last = -(-self._at // alignment) * alignment, 0, ""
        for name, (shape, code, offset) in sorted(infos.items(), key=lambda item: item[1][2]):
            try:
                stored = Stored(code)
            except ValueError:
                raise ValueError(f"the tensor {name!r} is stored in an unknown type ({code})") from None
            block, width = gguf.GGML_QUANT_SIZES[stored]
            count = 1
            for length in shape:  # Python's integers do not overflow
                count *= length
            if count == 0 or shape[-1] % block:
                raise ValueError(f"the tensor {name!r} has the shape {shape}, which {stored.name} cannot have")
            size = count // block * width
            if offset % alignment or start + offset + size > self._size:
                raise ValueError(
                    f"the tensor {name!r} begins at byte {start + offset:,} and takes {size:,}, which the file has not"
                )
            if offset < end:  # a short file could otherwise claim to be a large model
                raise ValueError(f"the tensors {last!r} and {name!r} lie upon each other")
            end, last = offset + size, name
            self.tensors[name] = StoredTensor(shape, stored, start + offset, size)


def _opened(path: Path) -> BinaryIO:
    if not path.exists():
        raise FolderError(not_found(path))
    if path.is_dir():
        raise FolderError(f"{path} is a folder. Name the GGUF file in it.")
    if not path.is_file():
        raise FolderError(f"{path} is not a GGUF file.")
    try:
        if path.stat().st_size == 0:
            raise FolderError(f"{path} is empty.")
        return path.open("rb")
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror or error}.") from None


def _as_stored(raw: np.ndarray, known: StoredTensor) -> np.ndarray:
    if known.stored in (Stored.F32, Stored.F16):
        return raw.view(np.float32 if known.stored == Stored.F32 else np.float16).reshape(known.shape)
    return raw.reshape(gguf.quant_shape_to_byte_shape(known.shape, known.stored))
