"""What a run needs to resume: weights, optimizer state and the step. Everything random is a function of seed and step,
so there is nothing else to keep.

`checkpoints/step-000200/` holds `network.safetensors`, `optimizer.safetensors`, `state.json` and a manifest with
hashes. Processes that share the weights each write files of their own parts, and hash them. A checkpoint is renamed
into place once complete. One whose files do not match its manifest is skipped with a message.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.errors import FolderError
from weft.folders import MANIFEST, changed_files, disk_errors, file_entry, read_json, replace_folder, to_json
from weft.model.network import Network
from weft.progress import say
from weft.train.layout import WeightLayout
from weft.train.local import local_part
from weft.train.processes import Processes
from weft.train.stored_parts import StoredParts, write_parts

CHECKPOINTS, STATE = "checkpoints", "state.json"


def save_checkpoint(
    folder: Path,
    step: int,
    network: Network,
    optimizers: Sequence[Optimizer],
    *,
    keep: int,
    state: dict[str, Any],
    processes: Processes | None = None,
) -> Path:
    """Write `folder/step-…`. Of the older checkpoints the newest `keep` − 1 stay, and the step `state["best"]`.

    Every process must call it. Returns when the checkpoint is in its place.
    """
    known = processes or Processes()

    def write(new: Path) -> list[Path | None]:
        layout = WeightLayout(network)
        return [
            write_parts(dict(network.named_parameters()), new, "network", layout, known),
            write_parts(_optimizer_tensors(network, optimizers), new, "optimizer", layout, known),
        ]

    return write_checkpoint(folder, step, write, keep=keep, state=state, processes=known)


def write_checkpoint(
    folder: Path,
    step: int,
    write: Callable[[Path], Sequence[Path | None]],
    *,
    keep: int,
    state: dict[str, Any],
    processes: Processes,
) -> Path:
    """As `save_checkpoint`. `write` puts this process's files into a folder, and returns them."""
    place, is_first = folder / f"step-{step:06}", processes.is_first
    with replace_folder(place, mark=STATE) if is_first else nullcontext() as made:
        new = Path(processes.broadcast(str(made)))
        entries = processes.gather(_write_own_files(new, write, processes))
        if problems := [entry["problem"] for entry in entries if "problem" in entry]:
            raise FolderError(problems[0])
        if is_first:
            (new / STATE).write_bytes(to_json({"step": step, **state}))
            files = {name: entry for each in entries for name, entry in each.items()}
            (new / MANIFEST).write_bytes(to_json({"files": files | {STATE: file_entry(new / STATE)}}))
    if is_first:
        older = [number for number in list_checkpoints(folder) if number != step]
        for number in sorted(older, reverse=True)[keep - 1 :]:
            if number != state.get("best"):
                shutil.rmtree(folder / f"step-{number:06}", ignore_errors=True)
    processes.barrier()
    return place


def _write_own_files(new: Path, write: Callable[[Path], Sequence[Path | None]], processes: Processes) -> dict[str, Any]:
    """The manifest's entries of the files that this process wrote, or the problem it had: the others must know."""
    try:
        with disk_errors(new):
            return {file.name: file_entry(file) for file in write(new) if file is not None}
    except FolderError as error:
        if processes.world == 1:
            raise
        return {"problem": str(error)}


def list_checkpoints(folder: Path) -> list[int]:
    """The steps of all checkpoints, rising."""
    if not folder.is_dir():
        return []
    names = [re.fullmatch(r"step-(\d+)", item.name) for item in folder.iterdir()]
    return sorted(int(name[1]) for name in names if name)


def restore_newest(
    folder: Path, network: Network, optimizers: Sequence[Optimizer], processes: Processes | None = None
) -> dict[str, Any] | None:
    """Load the newest intact checkpoint. Returns its state, or None if there is none."""
    found = newest_checkpoint(folder, processes or Processes())
    if found is None:
        return None
    place, state = found
    restore_weights(place, network)
    _fill_optimizers(place, network, optimizers)
    return state


def newest_checkpoint(folder: Path, processes: Processes) -> tuple[Path, dict[str, Any]] | None:
    """The newest intact one and its state. Every process must ask."""
    step, state = processes.broadcast(_newest_intact(folder) if processes.is_first else (None, None))
    return None if step is None or state is None else (folder / f"step-{step:06}", state)


def _newest_intact(folder: Path) -> tuple[int | None, dict[str, Any] | None]:
    """Its step and its state."""
    for step in reversed(list_checkpoints(folder)):
        place = folder / f"step-{step:06}"
        try:
            if broken := changed_files(place):
                raise FolderError(f"{place / broken[0]} is damaged.")
            return step, read_json(place / STATE)
        except FolderError as error:
            say(f"{error} Skipping this checkpoint.")
    return None, None


@torch.no_grad()
def restore_weights(place: Path, network: Network) -> None:
    parameters, layout = dict(network.named_parameters()), WeightLayout(network)
    with StoredParts(place, "network") as stored:
        if wrong := sorted(set(stored.names) ^ set(parameters)):
            raise FolderError(f"{place} is a checkpoint of another model: {wrong[0]} is not in both.")
        for name, parameter in parameters.items():
            part = layout.part(name, parameter)
            if stored.shape(name) != part.whole:
                raise FolderError(f"{place} is a checkpoint of another model: {name} has another shape.")
            local_part(parameter).copy_(stored.read(name, part))


def _optimizer_tensors(network: Network, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Tensors by state and parameter: `exp_avg/encoder.blocks.0…`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _fill_optimizers(place: Path, network: Network, optimizers: Sequence[Optimizer]) -> None:
    parameters, layout = dict(network.named_parameters()), WeightLayout(network)
    owner = {parameter: o for o in optimizers for group in o.param_groups for parameter in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    with StoredParts(place, "optimizer") as stored:
        for name in stored.names:
            key, _, parameter_name = name.partition("/")
            parameter = parameters[parameter_name]
            # Copied into memory that torch aligns: the rounding of a kernel can depend on the alignment.
            if shape := stored.shape(name):
                state, part = torch.zeros_like(parameter), layout.part(parameter_name, parameter)
                if shape != part.whole:
                    raise FolderError(f"{place} is a checkpoint of another model: {name} has another shape.")
                local_part(state).copy_(stored.read(name, part))
            else:
                state = stored.number(name).to(parameter.device, copy=True)
            owner[parameter].state[parameter][key] = state
