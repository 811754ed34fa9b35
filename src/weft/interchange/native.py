"""weft's own format, `model_type: weft`, for architectures that no Hugging Face family has (an LSTM, a BERT with rotary
positions, layers that differ). The config holds the `Architecture`; tensors have weft's names. transformers cannot open
it.
"""

import math
from dataclasses import asdict, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from weft.errors import FolderError
from weft.interchange.weight_map import Link
from weft.model.network import Architecture, Network
from weft.model.stack import StackSpec

MODEL_TYPE = "weft"
_MOST_LAYERS = 1000


def write_config(architecture: Architecture) -> dict[str, Any]:
    settings = asdict(architecture)
    for side in ("encoder", "decoder"):
        stack = getattr(architecture, side)
        if stack is not None and stack.is_uniform:  # write the block once
            blocks = settings[side].pop("blocks")
            settings[side] = {"layers": len(blocks), "block": blocks[0], **settings[side]}
    return {"model_type": MODEL_TYPE, "architecture": settings}


def read_config(config: dict[str, Any]) -> Architecture:
    if "architecture" not in config:
        raise FolderError("config.json has no architecture.")
    return _build(Architecture, config["architecture"], "architecture")


def links(network: Network) -> list[Link]:
    return [Link(name, (name,)) for name, _ in network.named_parameters()]


def _build(kind: Any, value: Any, path: str) -> Any:
    """A value of type `kind` from JSON. Raises FolderError with the path of an unknown, missing or mistyped value."""
    if is_dataclass(kind):
        return _build_dataclass(kind, value, path)
    if get_origin(kind) in (Union, UnionType):
        return _build_union(get_args(kind), value, path)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise FolderError(
                f"config.json: {path} is {value!r}, which is not one of {', '.join(map(str, get_args(kind)))}."
            )
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise FolderError(f"config.json: {path} is not a list.")
        return tuple(_build(get_args(kind)[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if type(value) is not kind:
        raise FolderError(f"config.json: {path} is {value!r}, which is not {kind.__name__}.")
    if kind is int and not 0 <= value <= (_MOST_LAYERS if path.endswith(".layers") else 10**8):
        raise FolderError(f"config.json: {path} is {value}, which is out of range.")
    return value


def _build_dataclass(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise FolderError(f"config.json: {path} is not an object.")
    if kind is StackSpec:
        value = _with_blocks(value, path)
    names = {item.name for item in fields(kind)}
    if wrong := sorted(names ^ set(value)):
        raise FolderError(f"config.json: {path}.{wrong[0]} is {'missing' if wrong[0] in names else 'not a setting'}.")
    hints = get_type_hints(kind)
    return kind(**{name: _build(hints[name], value[name], f"{path}.{name}") for name in value})


def _with_blocks(value: dict[str, Any], path: str) -> dict[str, Any]:
    """Replace `layers` and `block` (equal layers) by `blocks`."""
    if "blocks" in value:
        blocks = value["blocks"]
        if isinstance(blocks, list) and not 1 <= len(blocks) <= _MOST_LAYERS:
            raise FolderError(f"config.json: {path}.blocks has {len(blocks)} layers; it must be 1 to {_MOST_LAYERS}.")
        return value
    for key in ("layers", "block"):
        if key not in value:
            raise FolderError(f"config.json: {path}.{key} is missing.")
    layers = _build(int, value["layers"], f"{path}.layers")
    if layers < 1:
        raise FolderError(f"config.json: {path}.layers is {layers}, which is out of range.")
    rest = {key: item for key, item in value.items() if key not in ("layers", "block")}
    return {"blocks": [value["block"]] * layers, **rest}


def _build_union(options: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if isinstance(value, dict):
        for option in options:  # alternatives are told apart by `kind`
            if len(options) == 1 or get_args(get_type_hints(option)["kind"])[0] == value.get("kind"):
                return _build(option, value, path)
        raise FolderError(f"config.json: {path}.kind is {value.get('kind')!r}, which is not supported.")
    return _build(options[0], value, path)
