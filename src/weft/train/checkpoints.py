"""What a run needs to resume: weights, optimizer state and the step. Everything random is a function of seed and step,
so there is nothing else to keep.

`checkpoints/step-000200/` holds `network.safetensors`, `optimizer.safetensors`, `state.json` and a manifest with
hashes. Processes that share the weights each write files of their own parts, and hash them: `pending_checkpoint`. One
whose files do not match its manifest is skipped with a message.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.errors import FolderError
from weft.folders import changed_files, read_json
from weft.model.network import Network
from weft.progress import say
from weft.train.layout import WeightLayout
from weft.train.local import local_part
from weft.train.pending_checkpoint import STATE, list_checkpoints
from weft.train.processes import Processes
from weft.train.stored_parts import OwnFile, StoredParts, own_files

CHECKPOINTS = "checkpoints"


def training_files(network: Network, optimizers: Sequence[Optimizer], processes: Processes) -> list[OwnFile]:
    """The files that this process has to write. Their tensors are those of the network, not copies."""
    layout, states = WeightLayout(network), _optimizer_tensors(network, optimizers)
    return [
        *own_files(dict(network.named_parameters()), "network", layout, processes),
        *own_files(states, "optimizer", layout, processes),
    ]


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
