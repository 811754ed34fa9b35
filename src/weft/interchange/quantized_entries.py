"""Quantized matrices between a network and a folder: joined where weft joins (query, key, value), split where Hugging
Face splits. Rows carry their own scales, so both only move rows and no value changes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from weft.errors import FolderError
from weft.interchange.torchao import QuantizedFiles
from weft.interchange.weight_map import Entry, Plan
from weft.model.network import Network
from weft.model.quantized import QuantizedWeight, put_quantized, quantized_modules


def why_not_fp32(network: Network, facts: Mapping[str, Any]) -> str | None:
    """For whatever needs fp32 weights (training, pruning, exports): a sentence, if the model is quantized.

    `facts`: its weft.json, which may be anybody's.
    """
    if not quantized_modules(network):
        return None
    steps = facts.get("compressed")
    last = steps[-1] if isinstance(steps, list) and steps else None
    origin = last.get("from") if isinstance(last, dict) else None
    return "It is quantized. Use the fp32 model that it was made from" + (f": {origin}." if origin else ".")


def outline_quantized(network: Network, network_plan: Plan, files: QuantizedFiles, names: Mapping[str, str]) -> None:
    """Put quantized modules without memory into an outlined network, where the files hold quantized matrices.

    Raises FolderError for a tensor that weft does not use quantized.
    """
    for entry in network_plan.entries:
        kinds = [files.matrices.get(names[name]) for name in entry.theirs]
        found = [kind for kind in kinds if kind is not None]
        if not found:
            continue
        name, (module, _, last) = entry.theirs[0], entry.ours.rpartition(".")
        layer = network.get_submodule(module)
        if last != "weight" or entry.link.transposed or not (isinstance(layer, nn.Linear) or _is_table(module)):
            raise FolderError(f"{name} is quantized; weft reads quantized linear layers and token embeddings.")
        if len(found) < len(kinds) or len({(kind.bits, kind.group) for kind in found}) > 1:
            raise FolderError(f"{', '.join(entry.theirs)} are one matrix in weft, so they must be quantized alike.")
        bits, group = found[0].bits, found[0].group
        rows, columns = layer.weight.shape
        if _is_table(module) and bits != 8:
            raise FolderError(f"{name} has {bits} bits; weft reads token embeddings with 8.")
        with torch.device("meta"):
            values, scales = torch.empty(rows, columns, dtype=torch.int8), torch.empty(rows, columns // group)
        put_quantized(network, module, QuantizedWeight(values, scales, bits))


def fill_quantized(network: Network, entry: Entry, files: QuantizedFiles, names: Mapping[str, str]) -> bool:
    """Load a quantized matrix into the outlined network. Returns whether it is one."""
    if names[entry.theirs[0]] not in files.matrices:
        return False
    parts = [files.get_quantized(names[name]) for name in entry.theirs]
    values, scales = (torch.cat(list(tensors)) for tensors in zip(*((p.values, p.scales) for p in parts), strict=True))
    put_quantized(network, entry.ours.rpartition(".")[0], QuantizedWeight(values, scales, parts[0].bits))
    return True


def stored_matrices(network: Network, network_plan: Plan) -> dict[str, QuantizedWeight]:
    """The quantized matrices of the network by their names in a file."""
    modules, found = quantized_modules(network), dict[str, QuantizedWeight]()
    for entry in network_plan.entries:
        module, _, last = entry.ours.rpartition(".")
        if last == "weight" and module in modules:
            weight = modules[module].quantized
            parts = zip(entry.theirs, entry.split(weight.values), entry.split(weight.scales), strict=True)
            found |= {name: QuantizedWeight(values, scales, weight.bits) for name, values, scales in parts}
    return found


def _is_table(module: str) -> bool:
    return module.endswith("embed.tokens")
