"""Tensors on disk: `model.safetensors`, or shards with an index. Headers are read at once, tensors on demand.

Pickled weights (`pytorch_model.bin`, `.pt`, `.ckpt`) can run code when they are opened, so weft refuses them.
"""

import errno
import json
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from weft.errors import FolderError

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
FLOAT_TYPES = {"F64", "F32", "F16", "BF16"}


class TensorFiles:
    """The tensors of a folder by name."""

    def __init__(self, folder: Path) -> None:
        self._file_of: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._kinds: dict[str, str] = {}
        self.metadata: dict[str, str] = {}  # of all headers
        expected = _read_index(folder) if (folder / INDEX_FILE).is_file() else None
        for file in _weight_files(folder, expected):
            self._read_header(file)
        if expected is not None:
            for name, shard in expected.items():
                if name not in self.shapes:
                    raise FolderError(f"{folder / INDEX_FILE} lists {name} in {shard}, but the shard does not hold it.")

    def _read_header(self, file: Path) -> None:
        try:
            with safe_open(file, framework="pt") as tensors:
                self.metadata |= tensors.metadata() or {}
                for name in tensors.keys():  # noqa: SIM118 (not a dict)
                    view = tensors.get_slice(name)
                    self._file_of[name], self._kinds[name] = file, view.get_dtype()
                    self.shapes[name] = tuple(view.get_shape())
        except (SafetensorError, OSError) as error:
            raise FolderError(
                f"{file} is not a complete safetensors file ({_reason(error)}). Copy or download it again."
            ) from error

    def stored_as(self, name: str) -> str:
        """The dtype as safetensors names it: F32, BF16, I64 …"""
        return self._kinds[name]

    def get(self, name: str) -> Tensor:
        with safe_open(self._file_of[name], framework="pt") as tensors:
            return tensors.get_tensor(name)


def write_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    try:
        # transformers requires this entry.
        save_file(dict(tensors), file, metadata={"format": "pt", **(metadata or {})})
        if metadata:
            _sort_metadata(file)
    except SafetensorError as error:
        # The Rust library reports a full disk as text that contains the errno.
        found = re.search(r"os error (\d+)", str(error))
        raise OSError(int(found[1]) if found else errno.EIO, _reason(error)) from error


def _sort_metadata(file: Path) -> None:
    """The library writes the metadata in random order; equal models should be equal files."""
    with file.open("r+b") as stored:
        size = int.from_bytes(stored.read(8), "little")
        header = json.loads(stored.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        data = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(data) <= size:  # the same JSON in another order, so always
            stored.seek(8)
            stored.write(data.ljust(size))


def _weight_files(folder: Path, expected: dict[str, str] | None) -> list[Path]:
    if expected is not None:
        files = [folder / shard for shard in sorted(set(expected.values()))]
        for file in files:
            if not file.is_file():
                raise FolderError(f"{file} is missing: {INDEX_FILE} lists it as a shard.")
        return files
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if pickled := sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLE_SUFFIXES):
        raise FolderError(
            f"{folder} holds its weights as a pickle ({pickled[0]}). Opening it could run code, so weft does not. "
            "If you trust it, convert it: "
            "transformers.AutoModel.from_pretrained(folder).save_pretrained(new_folder, safe_serialization=True)."
        )
    raise FolderError(f"{folder} has no weights: neither {SINGLE_FILE} nor {INDEX_FILE} is there.")


def _read_index(folder: Path) -> dict[str, str]:
    try:
        shards = json.loads((folder / INDEX_FILE).read_text("utf-8"))["weight_map"]
        pairs = list(shards.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{folder / INDEX_FILE} is not an index of shards: {_reason(error)}.") from error
    for name, shard in pairs:
        # A path could point anywhere on the disk.
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise FolderError(
                f"{folder / INDEX_FILE}: {name} is listed in {shard!r}, which is not a file name of a shard."
            )
    return shards


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".").split("\n")[0] or type(error).__name__
