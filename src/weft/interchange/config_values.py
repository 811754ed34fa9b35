"""Checked values of a config.json, which comes from outside and may hold anything."""

from typing import Any

from weft.errors import FolderError
from weft.model.feedforward import Activation

# transformers has several names for some functions; weft writes the first.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "relu2": "relu-squared",
    "silu": "silu",
    "tanh": "tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_python": "gelu",
    "swish": "silu",
}


def activation_to_hf(activation: Activation) -> str:
    return next(name for name, ours in _ACTIVATIONS.items() if ours == activation)


def activation_from_hf(name: str, key: str) -> Activation:
    if name not in _ACTIVATIONS:
        raise FolderError(f"config.json: {key} {name!r} is not supported; known: {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def check_type(value: Any, wanted: Any, key: str) -> Any:
    """The value, if it has the type `wanted`: int, float or bool, optional or not. Raises FolderError otherwise."""
    options = getattr(wanted, "__args__", (wanted,))
    if value is None and type(None) in options:
        return None
    if bool in options and isinstance(value, bool):
        return value
    if int in options and isinstance(value, int) and not isinstance(value, bool):
        return value
    if float in options and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise FolderError(f"config.json: {key} is {value!r}, which is not {_describe(options)}.")


def _describe(options: tuple[Any, ...]) -> str:
    words = {int: "an integer", float: "a number", bool: "true or false"}
    return " or ".join(words[option] for option in options if option in words)


def read_classifier_dropout(config: dict[str, Any]) -> float:
    """The dropout of a decoder's token head: classifier_dropout, else hidden_dropout, else 0.1."""
    for key in ("classifier_dropout", "hidden_dropout"):
        if config.get(key) is not None:
            return check_type(config[key], float, key)
    return 0.1


def require(config: dict[str, Any], key: str, allowed: tuple[Any, ...], why: str) -> None:
    """Raises FolderError if the config asks for something unsupported."""
    if key in config and config[key] not in allowed:
        raise FolderError(f"config.json: {key} = {config[key]!r} is not supported: {why}.")
