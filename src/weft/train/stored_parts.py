"""Tensors of a checkpoint, which one process wrote whole or several processes part by part.

network.safetensors                  all tensors
network-00002-of-00004.safetensors   what the second of four processes has of them; its header says which part

Whoever reads asks for the part it needs, so a checkpoint opens on any number of processes, however they share the
weights.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from weft.errors import FolderError
from weft.interchange.tensor_files import write_tensors
from weft.model.parts import Part, everything, overlaps
from weft.train.layout import WeightLayout
from weft.train.local import is_shard, local_part
from weft.train.processes import Processes

_PARTS = "parts"  # in the header, as JSON: name → shape of the whole, and the ranges of each dimension


def write_parts(
    tensors: Mapping[str, Tensor], folder: Path, stem: str, layout: WeightLayout, processes: Processes
) -> Path | None:
    """Write what this process has of the tensors. Returns the file, if there is something to write. A tensor is laid
    out like the weight of its name, which may follow a slash: `exp_avg/embed.tokens.weight`.
    """
    if processes.has_whole_weights:
        if not processes.is_first:
            return None
        file = folder / f"{stem}.safetensors"
        write_tensors({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, file)
        return file
    kept: dict[str, Tensor] = {}
    parts: dict[str, Part] = {}
    for name, tensor in tensors.items():
        if not tensor.dim():
            if processes.is_first:
                kept[name] = tensor.detach()
        elif layout.counts(weight := _weight(name)) and (is_shard(tensor) or processes.data.is_first):
            part = layout.part(weight, tensor)
            if all(part.shape):
                kept[name], parts[name] = local_part(tensor.detach()).contiguous(), part
    return write_own_parts(kept, parts, folder, stem, processes)


def write_own_parts(
    kept: dict[str, Tensor], parts: Mapping[str, Part], folder: Path, stem: str, processes: Processes
) -> Path | None:
    """Write a file of this process's own. `parts`: of which whole tensors `kept` are parts."""
    if not kept:
        return None
    said = {
        name: [part.whole, [[[one.start, one.stop] for one in each] for each in part.ranges]]
        for name, part in parts.items()
    }
    file = folder / f"{stem}-{processes.rank + 1:05}-of-{processes.world:05}.safetensors"
    write_tensors(kept, file, {_PARTS: json.dumps(said)})
    return file


def _weight(name: str) -> str:
    return name.rpartition("/")[2]


class _Stored(NamedTuple):
    """A part of a tensor, in one file."""

    part: Part
    view: Any  # read when it is sliced


class StoredParts:
    """The tensors with one stem in a checkpoint's folder, by name. A context manager."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder, self.stem = folder, stem
        self._open = ExitStack()
        self._parts: dict[str, list[_Stored]] = {}
        self._files: dict[str, Any] = {}

    def __enter__(self) -> "StoredParts":
        files = [self.folder / f"{self.stem}.safetensors", *sorted(self.folder.glob(f"{self.stem}-*.safetensors"))]
        try:
            for file in filter(Path.is_file, files):
                self._add(file)
        except (SafetensorError, OSError, ValueError) as error:
            self._open.close()
            raise FolderError(f"{self.folder} has a damaged file of the {self.stem} ({error}).") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _add(self, file: Path) -> None:
        stored = self._open.enter_context(safe_open(file, framework="pt"))
        parts = json.loads((stored.metadata() or {}).get(_PARTS, "{}"))
        for name in stored.keys():  # noqa: SIM118 (not a mapping)
            view = stored.get_slice(name)
            part = everything(view.get_shape())
            if name in parts:
                whole, ranges = parts[name]
                part = Part(tuple(whole), tuple(tuple(range(*ends) for ends in each) for each in ranges))
            self._parts.setdefault(name, []).append(_Stored(part, view))
            self._files[name] = stored

    @property
    def names(self) -> list[str]:
        return list(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the whole tensor."""
        return self._parts[name][0].part.whole

    def number(self, name: str) -> Tensor:
        """A tensor without dimensions."""
        return self._files[name].get_tensor(name)

    def read(self, name: str, wanted: Part) -> Tensor:
        """A part of it."""
        found, missing = None, torch.Size(wanted.shape).numel()
        for part, view in self._parts[name]:
            for there, here in overlaps(part, wanted):
                values = view[there]
                found = values.new_empty(wanted.shape) if found is None else found
                found[here] = values
                missing -= values.numel()
        if missing:
            raise FolderError(f"{self.folder} lacks {missing:,} numbers of {name}.")
        return torch.empty(wanted.shape) if found is None else found
