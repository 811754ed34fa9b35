"""The outputs of a teacher on disk, one file per batch, shared by any number of students.

A file is named after a hash of the batch and lies in a folder named after a hash of everything else that the bits
depend on: the teacher's weights, what is stored, the precision and the number of threads. So batches of another seed,
length or data are other files, and nothing can be mixed up. Each file has a checksum; a damaged one is computed anew.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from weft.folders import disk_errors, write_file
from weft.inference.precision import packed_precision
from weft.model.network import Network
from weft.objectives.distil_teacher import Outputs, Teacher, Wanted
from weft.objectives.objective import Batch
from weft.progress import say

_CHECKSUM = "sha256"


class TeacherCache:
    """Where a teacher finds its earlier outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Outputs | None:
        file = self._file(key)
        if not file.is_file():
            return None
        try:
            with safe_open(file, "pt") as stored:
                found = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a mapping)
                known = (stored.metadata() or {}).get(_CHECKSUM)
        except (SafetensorError, OSError):
            known, found = None, {}
        if known is None or known != _checksum(found):
            say(f"{file} is damaged: its outputs are computed again.")
            return None
        return found

    def add(self, key: str, outputs: Outputs) -> None:
        file = self._file(key)
        with disk_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(outputs.items())}
        write_file(file, save(kept, metadata={_CHECKSUM: _checksum(kept)}))

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"


def _checksum(tensors: Outputs) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def teacher_hash(network: Network) -> str:
    """Of its weights and its architecture."""
    digest = hashlib.sha256(repr(network.architecture).encode())
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def cache_folder(place: Path, network: Network, wanted: Wanted, precision: str) -> Path:
    computing = f"{precision}, {packed_precision(network)}" if network.fast is not None else precision
    facts = [teacher_hash(network), repr(wanted), computing, torch.get_num_threads(), torch.__version__]
    return place / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def cached_teacher(
    network: Network,
    wanted: Wanted,
    place: Path | None,
    limit: float,
    precision: str,
    batch: Callable[[], Batch],
    batches: int,
) -> Teacher:
    """A teacher with a cache at `place`, unless there is none or its outputs would take more than `limit` GB.

    `batch`: any of the `batches` that it will see, to estimate the size.
    """
    teacher = Teacher(network, wanted)
    if place is None:
        return teacher
    device = next(network.parameters()).device
    outputs = teacher.compute(batch().to(device))
    size = sum(map(_bytes, outputs.values())) * batches / 1e9
    if size > limit:
        say(
            f"The teacher's outputs would take about {size:,.1f} GB in {place}, more than distil.cache_limit "
            f"({limit:g} GB): the teacher computes them in every step."
        )
        return teacher
    say(f"The teacher's outputs take about {size:,.2f} GB in {place}.")
    return Teacher(network, wanted, TeacherCache(cache_folder(place, network, wanted, precision)))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
