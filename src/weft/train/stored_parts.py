"""Tensors of a checkpoint, which one process wrote whole or several processes part by part.

network.safetensors                  all tensors
network-00002-of-00004.safetensors   what the second of four processes has of them; its header says which part

Whoever reads asks for the part it needs, so a checkpoint opens on any number of processes, however they share the
weights.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from weft.errors import FolderError
from weft.folders import sync
from weft.interchange.tensor_files import write_tensors
from weft.model.parts import Part, everything, overlaps
from weft.train.layout import WeightLayout
from weft.train.local import is_shard, local_part
from weft.train.processes import Processes

_PARTS = "parts"  # in the header, as JSON: name → shape of the whole, and the ranges of each dimension


@dataclass
class OwnFile:
    """What this process has of some tensors, and the file of a checkpoint that holds it."""

    name: str
    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def copy_tensors(self) -> None:
        """To memory of their own: the next step changes the weights."""
        for name, tensor in self.tensors.items():
            self.tensors[name] = tensor.to("cpu", copy=True)

    def write(self, folder: Path) -> Path:
        file = folder / self.name
        write_tensors(self.tensors, file, self.metadata)
        sync(file)
        return file


def own_files(tensors: Mapping[str, Tensor], stem: str, layout: WeightLayout, processes: Processes) -> list[OwnFile]:
    """The file that this process has to write, if any. A tensor is laid out like the weight of its name, which may
    follow a slash: `exp_avg/embed.tokens.weight`.
    """
    if processes.has_whole_weights:
        whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        return [OwnFile(f"{stem}.safetensors", whole, {})] if processes.is_first else []
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
    return file_of_parts(kept, parts, stem, processes)


def file_of_parts(kept: dict[str, Tensor], parts: Mapping[str, Part], stem: str, processes: Processes) -> list[OwnFile]:
    """`parts`: of which whole tensors `kept` are parts. No file if there are none."""
    said = {
        name: [part.whole, [[[one.start, one.stop] for one in each] for each in part.ranges]]
        for name, part in parts.items()
    }
    name = f"{stem}-{processes.rank + 1:05}-of-{processes.world:05}.safetensors"
    return [OwnFile(name, kept, {_PARTS: json.dumps(said)})] if kept else []


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
