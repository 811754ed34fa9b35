"""What is specific to one Hugging Face family: config keys, class names, weight names."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from torch import Tensor

from weft.errors import FolderError
from weft.interchange import config_values
from weft.interchange.weight_map import Link
from weft.model.families.family import Family
from weft.model.network import Architecture


@dataclass(frozen=True)
class Dialect:
    model_type: str
    family: type[Family]
    knobs: dict[str, str]  # config key -> setting of our family
    classes: dict[str, str]  # our head -> transformers' class; the default head first
    links: Callable[[Architecture, str], Iterator[Link]]  # (architecture, prefix of the backbone's names)
    prefix: Callable[[str], str]  # head -> prefix
    defaults: dict[str, Any] = field(default_factory=dict)  # transformers' defaults, where ours differ
    check: Callable[[dict[str, Any]], None] = lambda config: None  # raises FolderError for unsupported settings
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {}  # settings that are not in `knobs`
    write: Callable[[Any], dict[str, Any]] = lambda family: {}
    tokens: Callable[[int], dict[str, int | None]] = lambda vocabulary: {"pad_token_id": 0}
    ignored: tuple[str, ...] = ()  # patterns of stored tensors that are not used
    # Computed tensors that transformers expects in the file.
    tables: Callable[[Architecture, str], dict[str, Tensor]] = lambda architecture, head: {}

    def read_family(self, config: dict[str, Any]) -> Family:
        self.check(config)
        types = get_type_hints(self.family)
        settings: dict[str, Any] = {}
        for key, knob in self.knobs.items():
            if key not in config and key not in self.defaults:
                if knob in ("vocabulary", "layers", "width", "heads"):
                    raise FolderError(f"config.json has no {key}.")
                continue
            value = config.get(key, self.defaults.get(key))
            if "activation" in knob:
                settings[knob] = config_values.activation_from_hf(str(value), key)
            else:
                settings[knob] = config_values.check_type(value, types[knob], key)
        return self.family(**{**settings, **self.read(config)})

    def write_config(self, family: Family, head: str, vocabulary: int) -> dict[str, Any]:
        config: dict[str, Any] = {"architectures": [self.classes[head]], "model_type": self.model_type}
        for key, knob in self.knobs.items():
            value = getattr(family, knob)
            config[key] = config_values.activation_to_hf(value) if "activation" in knob else value
        return {**config, **self.tokens(vocabulary), **self.write(family)}

    def head_of(self, config: dict[str, Any]) -> str:
        """The head for the class in config.json. Default: the first in `classes`."""
        names = config.get("architectures") or []
        heads = {name: head for head, name in self.classes.items()}
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FolderError("config.json: architectures is not a list of class names.")
        if not names:
            return next(iter(self.classes))
        if names[0] not in heads:
            raise FolderError(f"config.json: the class {names[0]!r} is not supported; known: {', '.join(heads)}.")
        return heads[names[0]]


def joined(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names)
