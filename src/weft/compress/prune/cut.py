"""Which layers, neurons and heads stay, and the network that is left.

A network whose layers keep equally many neurons and heads has a config in its family's format, if the format has
settings for them: all know the number of layers and the inner width; T5, Llama and Qwen3 also the number of heads,
because they name the width of a head. Any other network is saved in weft's own format.

Key/value heads are the unit, each with the query heads that share it (Ainslie et al. 2023).
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from weft.interchange.folder import Description
from weft.model.block import BlockSpec
from weft.model.network import Architecture, Network
from weft.model.stack import StackSpec

StackSide = Literal["encoder", "decoder"]
SIDES: tuple[StackSide, ...] = ("encoder", "decoder")


@dataclass(frozen=True)
class KeptLayer:
    layer: int  # its number in the whole network
    neurons: Tensor  # sorted
    heads: Tensor  # key/value heads of self-attention, sorted
    cross: Tensor | None = None  # heads of cross-attention


KeptParts = dict[StackSide, tuple[KeptLayer, ...]]


def stacks_of(architecture: Architecture) -> dict[StackSide, StackSpec]:
    found: dict[StackSide, StackSpec | None] = {"encoder": architecture.encoder, "decoder": architecture.decoder}
    return {side: stack for side, stack in found.items() if stack is not None}


def keep_everything(architecture: Architecture) -> KeptParts:
    return {
        side: tuple(_whole(number, block, cross=stack.cross) for number, block in enumerate(stack.blocks))
        for side, stack in stacks_of(architecture).items()
    }


def _whole(number: int, block: BlockSpec, *, cross: bool) -> KeptLayer:
    heads = torch.arange(block.attention.key_value_heads)
    return KeptLayer(number, torch.arange(block.feedforward.inner), heads, heads if cross else None)


def cut_network(network: Network, kept: KeptParts) -> Network:
    """A new network of what is kept. It shares no memory with the old one."""
    architecture = cut_architecture(network.architecture, kept)
    state = {
        name: tensor.clone()
        for name, tensor in network.state_dict().items()
        if not name.startswith(("encoder.", "decoder."))
    }
    for side, layers in kept.items():
        stack = stacks_of(network.architecture)[side]
        old = {name: value for name, value in network.state_dict().items() if name.startswith(f"{side}.")}
        for name, tensor in old.items():
            if not name.startswith(f"{side}.blocks."):
                is_bias_table = name == f"{side}.relative.table.weight"
                state[name] = tensor[:, layers[0].heads].clone() if is_bias_table else tensor.clone()
        for number, layer in enumerate(layers):
            prefix = f"{side}.blocks.{layer.layer}."
            whole = {name.removeprefix(prefix): value for name, value in old.items() if name.startswith(prefix)}
            for name, tensor in _cut_block(stack.blocks[layer.layer], layer, whole).items():
                state[f"{side}.blocks.{number}.{name}"] = tensor
    new = Network(architecture)
    new.load_state_dict(state)
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(network.get_parameter(_old_name(name, kept)).requires_grad)
    return new.to(next(network.parameters()).device).eval()


def _old_name(name: str, kept: KeptParts) -> str:
    side, _, rest = name.partition(".")
    if side not in SIDES or not rest.startswith("blocks."):
        return name
    _, number, rest = rest.split(".", 2)
    return f"{side}.blocks.{kept[side][int(number)].layer}.{rest}"  # type: ignore[index]


def _cut_block(block: BlockSpec, layer: KeptLayer, state: dict[str, Tensor]) -> dict[str, Tensor]:
    attention = block.attention
    width, shared = attention.head_width, attention.heads // attention.key_value_heads
    queries, keys = unit_columns(layer.heads, shared * width), unit_columns(layer.heads, width)
    first_key, first_value = attention.heads * width, (attention.heads + attention.key_value_heads) * width
    rows = {
        "attention.qkv": torch.cat([queries, first_key + keys, first_value + keys]),
        "feedforward.up": layer.neurons,
    }
    columns = {"attention.out": queries, "feedforward.down": layer.neurons}
    if block.feedforward.gated:
        rows["feedforward.up"] = torch.cat([layer.neurons, block.feedforward.inner + layer.neurons])
    if layer.cross is not None:
        cross = unit_columns(layer.cross, width)
        rows |= {"cross.query": cross, "cross.key_value": torch.cat([cross, first_key + cross])}
        columns["cross.out"] = cross
    found = {}
    for name, tensor in state.items():
        module, _, kind = name.rpartition(".")
        if module in rows:
            tensor = tensor[rows[module]]
        elif module in columns and kind == "weight":
            tensor = tensor[:, columns[module]]
        found[name] = tensor.clone()
    return found


def unit_columns(units: Tensor, width: int) -> Tensor:
    """The columns of some units of `width` columns each."""
    return (units[:, None] * width + torch.arange(width)).flatten()


def cut_architecture(architecture: Architecture, kept: KeptParts) -> Architecture:
    stacks = {side: _cut_stack(stack, kept[side]) for side, stack in stacks_of(architecture).items()}
    return replace(architecture, encoder=stacks.get("encoder"), decoder=stacks.get("decoder"))


def _cut_stack(stack: StackSpec, layers: tuple[KeptLayer, ...]) -> StackSpec:
    blocks = []
    for layer in layers:
        block = stack.blocks[layer.layer]
        shared = block.attention.heads // block.attention.key_value_heads
        count = len(layer.heads)
        attention = replace(block.attention, heads=count * shared, key_value_heads=count)
        feedforward = replace(block.feedforward, inner=len(layer.neurons))
        blocks.append(replace(block, attention=attention, feedforward=feedforward))
    local = stack.local
    if local is not None:
        places = tuple(new for new, layer in enumerate(layers) if layer.layer in local.layers)
        local = replace(local, layers=places) if places else None
    return replace(stack, blocks=tuple(blocks), local=local)


def describe_cut(description: Description, architecture: Architecture) -> Description:
    """The description with the family's settings of a network that was cut."""
    family = description.family
    if family is None:
        return description
    stacks = stacks_of(architecture)
    first, last = next(iter(stacks.values())), list(stacks.values())[-1]
    settings: dict[str, Any] = {"layers": first.layers, **_block_settings(first.blocks[0], "")}
    if len(stacks) > 1:
        settings |= {"decoder_layers": last.layers, **_block_settings(last.blocks[0], "decoder_")}
    settings["local_layers"] = () if first.local is None else first.local.layers
    known = {field.name for field in fields(family)}
    return replace(description, family=replace(family, **{k: v for k, v in settings.items() if k in known}))


def _block_settings(block: BlockSpec, side: str) -> dict[str, int]:
    attention = block.attention
    return {
        f"{side}inner": block.feedforward.inner,
        f"{side}heads": attention.heads,
        f"{side}key_value_heads": attention.key_value_heads,
        f"{side}head_width": attention.head_width,
    }
