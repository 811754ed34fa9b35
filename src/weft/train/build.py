"""The network that a recipe asks for: fresh weights of a family, or those of a folder, with the head to be trained.

Pre-training uses no dropout by default, since a small model rarely sees a sample often enough to memorize it. The saved
model keeps the family's dropout rates, for fine-tuning. So there are two architectures with the same weights: the one
that is trained and the one that is saved.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from weft.errors import RecipeError
from weft.interchange.folder import Description, read_fp32_model
from weft.model.block import Block
from weft.model.families import Family, design, find_family
from weft.model.initialize import initialize, zero_residual_writers
from weft.model.network import Architecture, Network, create_network, outline
from weft.model.positions import longest
from weft.model.tensor_parallel import network_of_peer
from weft.progress import say
from weft.recipe.model import ModelSection
from weft.tokenizer.tokenizer import SpecialRole, Tokenizer
from weft.train.layout import whole_state
from weft.train.processes import Processes

_TOKEN_ROLES: dict[str, tuple[SpecialRole, ...]] = {
    "bos_token_id": ("bos",),
    "eos_token_id": ("eos",),
    "pad_token_id": ("pad",),
    "decoder_start_token_id": ("pad", "bos"),
    "cls_token_id": ("cls",),
    "sep_token_id": ("sep",),
    "mask_token_id": ("mask",),
}


@dataclass(frozen=True)
class Built:
    network: Network  # the trained architecture
    saved: Architecture
    description: Description

    def to_save(self) -> Network:
        """A network of the saved architecture with the trained weights, which are not copied."""
        return _network_with(dict(self.network.named_parameters()), self.saved).eval()

    def for_process(self, processes: Processes) -> "Built":
        """What this process has of it, if tensor parallel peers share it."""
        if processes.tensor.world == 1:
            return self
        return replace(self, network=network_of_peer(self.network, processes.tensor))

    def gathered(self, processes: Processes) -> "Built":
        """With whole weights, if processes share them. All must ask for it; only the first one gets them."""
        if processes.has_whole_weights:
            return self
        state = whole_state(self.network, kept=processes.is_first)
        return replace(self, network=_network_with(state, self.network.architecture))


def _network_with(weights: Mapping[str, Tensor], architecture: Architecture) -> Network:
    """A network that has these weights themselves, not copies; only an outline of those that are missing. Tied weights
    stay tied.
    """
    network = outline(architecture)
    given = {weight: weights[name].detach() for name, weight in network.named_parameters() if name in weights}
    made = {weight: nn.Parameter(one, requires_grad=weight.requires_grad) for weight, one in given.items()}
    for module in network.modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            setattr(module, name, made.get(weight, weight))
    return network


def build_network(
    section: ModelSection,
    base: Path,
    head: str,
    tokenizer: Tokenizer,
    length: int,
    dropout: float | None,
    seed: int,
    *,
    is_outline: bool = False,
) -> Built:
    """`is_outline`: a fresh network has no weights yet, only their names and shapes (the meta device)."""
    built = (
        _from_folder(base / section.path, head, dropout, seed)
        if section.path is not None
        else _from_family(section, head, tokenizer, length, dropout, seed, is_outline=is_outline)
    )
    limit = longest(built.saved.embedding.positions)
    if limit is not None and length > limit:
        raise RecipeError(
            f"pretrain.sequence_length is {length:,}, but the model reads at most {limit:,} tokens. Lower it, or set "
            "model.positions."
        )
    if tokenizer.vocabulary > built.saved.vocabulary:
        raise RecipeError(
            f"The tokenizer has {tokenizer.vocabulary:,} tokens, the model {built.saved.vocabulary:,}: they do not "
            "belong together. Use the model's own tokenizer."
        )
    config = {**built.description.config, **token_ids(tokenizer, built.saved)}
    return replace(built, description=replace(built.description, config=config))


def _from_family(
    section: ModelSection,
    head: str,
    tokenizer: Tokenizer,
    length: int,
    dropout: float | None,
    seed: int,
    *,
    is_outline: bool,
) -> Built:
    assert section.family is not None
    settings = family_settings(section, tokenizer, length)
    family, saved = design(section.family, head=head, **settings)
    _, trained = design(section.family, head=head, **{**settings, **dropout_rates(family, set(settings), dropout)})
    if is_outline:
        return Built(outline(trained), saved, Description(family, head))
    return Built(fresh_network(trained, seed), saved, Description(family, head))


def fresh_network(architecture: Architecture, seed: int) -> Network:
    """A network with fresh weights."""
    network = Network(architecture)
    draw_weights(network, seed)
    return network


def draw_weights(network: Network, seed: int, only: Callable[[str], bool] = lambda path: True) -> None:
    """Fresh weights for a network, or for some of its modules, by their paths. With pre-norm, the output matrices of
    the blocks start at zero.
    """
    architecture = network.architecture
    initialize(network, architecture.init, layers=architecture.layers, seed=seed, only=only)
    stacks = [stack for stack in (architecture.encoder, architecture.decoder) if stack is not None]
    if all(block.order == "pre" for stack in stacks for block in stack.blocks):
        for path, module in network.named_modules():
            if only(path) and isinstance(module, Block):
                zero_residual_writers(module)


def family_settings(section: ModelSection, tokenizer: Tokenizer, length: int) -> dict[str, Any]:
    """The recipe's settings of a fresh model, with vocabulary and positions filled in."""
    assert section.family is not None
    settings = {key: value for key, value in section.settings().items() if key not in ("family", "labels", "head")}
    names = {knob.name for knob in fields(find_family(section.family))}
    settings.setdefault("vocabulary", tokenizer.vocabulary)
    if "pad" in names and (pad := tokenizer.id_of("pad")) is not None:
        settings.setdefault("pad", pad)
    if "positions" in names and section.size is None:
        # RoBERTa's positions start after the padding id.
        before = settings.get("pad", 1) + 1 if section.family == "roberta" else 0
        settings.setdefault("positions", length + before)
    return settings


def _from_folder(folder: Path, head: str, dropout: float | None, seed: int) -> Built:
    network, description = read_fp32_model(folder)
    family = description.family
    if family is None:  # weft's own format
        if not set(head.split("+")) <= set(network.heads):
            raise RecipeError(f"{folder} has no {head} head, and a model in weft's own format cannot get a new one.")
        architecture = network.architecture
        has_none = _with_dropout(architecture, 0.0) == architecture
        trained = Network(_with_dropout(architecture, dropout or 0.0, everywhere=has_none))
        trained.load_state_dict(network.state_dict())
        return Built(trained, architecture, description)
    saved = family.architecture(head)
    trained = create_network(replace(family, **dropout_rates(family, set(), dropout)).architecture(head), seed)
    loaded, fresh = network.state_dict(), trained.state_dict()
    missing = [name for name in fresh if name not in loaded]
    if missing:
        say(f"{folder} has no {head} head: it gets a fresh one.")
    trained.load_state_dict({name: loaded.get(name, tensor) for name, tensor in fresh.items()})
    return Built(trained, saved, replace(description, head=head, labels=()))


def dropout_rates(family: Family | type[Family], given: set[str], dropout: float | None) -> dict[str, Any]:
    """Dropout rates of the family by setting. Without `dropout`: 0 for all that are not `given`."""
    names = [knob.name for knob in fields(family) if knob.name.endswith("dropout")]
    if dropout is None:
        return {name: 0.0 for name in names if name not in given}
    return dict.fromkeys(names, dropout)


def _with_dropout(spec: Any, rate: float, *, everywhere: bool = False) -> Any:
    """The same specification with this rate where it has dropout, or everywhere."""
    changed: dict[str, Any] = {}
    for knob in fields(spec):
        value = getattr(spec, knob.name)
        if knob.name.endswith("dropout"):
            changed[knob.name] = rate if value or everywhere else 0.0
        elif knob.name == "blocks":
            changed["blocks"] = tuple(_with_dropout(block, rate, everywhere=everywhere) for block in value)
        elif is_dataclass(value):
            changed[knob.name] = _with_dropout(value, rate, everywhere=everywhere)
    return replace(spec, **changed)


def token_ids(tokenizer: Tokenizer, architecture: Architecture) -> dict[str, int]:
    found = {}
    for key, roles in _TOKEN_ROLES.items():
        if key == "decoder_start_token_id" and not architecture.is_encoder_decoder:
            continue
        ids = [token for role in roles if (token := tokenizer.id_of(role)) is not None]
        if ids:
            found[key] = ids[0]
    return found
