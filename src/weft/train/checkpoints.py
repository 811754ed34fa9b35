"""What a run needs to resume: weights, optimizer state and the step. Everything random is a function of seed and step,
so there is nothing else to keep.

`checkpoints/step-000200/` holds `network.safetensors`, `optimizer.safetensors`, `state.json` and a manifest with
hashes. A checkpoint is renamed into place once complete. One whose files do not match its manifest is skipped with a
message.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from weft.errors import FolderError
from weft.folders import MANIFEST, changed_files, manifest, read_json, replace_folder, to_json
from weft.interchange.tensor_files import write_tensors
from weft.model.network import Network
from weft.progress import say

CHECKPOINTS, STATE = "checkpoints", "state.json"


def save_checkpoint(
    folder: Path, step: int, network: Network, optimizers: Sequence[Optimizer], *, keep: int, state: dict[str, Any]
) -> Path:
    """Write `folder/step-…`. Of the older checkpoints the newest `keep` − 1 stay, and the step `state["best"]`."""
    place = folder / f"step-{step:06}"
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    with replace_folder(place, mark=STATE) as new:
        write_tensors({name: tensor.contiguous() for name, tensor in weights.items()}, new / "network.safetensors")
        write_tensors(_optimizer_tensors(network, optimizers), new / "optimizer.safetensors")
        (new / STATE).write_bytes(to_json({"step": step, **state}))
        (new / MANIFEST).write_bytes(to_json(manifest(new)))
    older = [number for number in list_checkpoints(folder) if number != step]
    for number in sorted(older, reverse=True)[keep - 1 :]:
        if number != state.get("best"):
            shutil.rmtree(folder / f"step-{number:06}", ignore_errors=True)
    return place


def list_checkpoints(folder: Path) -> list[int]:
    """The steps of all checkpoints, rising."""
    if not folder.is_dir():
        return []
    names = [re.fullmatch(r"step-(\d+)", item.name) for item in folder.iterdir()]
    return sorted(int(name[1]) for name in names if name)


def restore_newest(folder: Path, network: Network, optimizers: Sequence[Optimizer]) -> dict[str, Any] | None:
    """Load the newest intact checkpoint. Returns its state, or None if there is none."""
    for step in reversed(list_checkpoints(folder)):
        place = folder / f"step-{step:06}"
        try:
            if broken := changed_files(place):
                raise FolderError(f"{place / broken[0]} is damaged.")
            state = read_json(place / STATE)
        except FolderError as error:
            say(f"{error} Skipping this checkpoint.")
            continue
        _restore(place, network, optimizers)
        return state
    return None


def _restore(place: Path, network: Network, optimizers: Sequence[Optimizer]) -> None:
    restore_weights(place, network)
    _fill_optimizers(load_file(place / "optimizer.safetensors"), network, optimizers)


@torch.no_grad()
def restore_weights(place: Path, network: Network) -> None:
    weights = load_file(place / "network.safetensors")
    parameters = dict(network.named_parameters())
    if wrong := sorted(set(weights) ^ set(parameters)):
        raise FolderError(f"{place} is a checkpoint of another model: {wrong[0]} is not in both.")
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise FolderError(f"{place} is a checkpoint of another model: {name} has another shape.")
        parameter.copy_(weights[name])


def _optimizer_tensors(network: Network, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Tensors by state and parameter: `exp_avg/encoder.blocks.0…`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value.contiguous()
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _fill_optimizers(tensors: dict[str, Tensor], network: Network, optimizers: Sequence[Optimizer]) -> None:
    parameters = dict(network.named_parameters())
    owner = {parameter: o for o in optimizers for group in o.param_groups for parameter in group["params"]}
    for optimizer in optimizers:
        optimizer.state.clear()
    for name, tensor in tensors.items():
        key, _, parameter_name = name.partition("/")
        parameter = parameters[parameter_name]
        # A copy in memory that torch aligns: the rounding of a kernel can depend on the alignment.
        owner[parameter].state[parameter][key] = tensor.to(parameter.device, copy=True)
