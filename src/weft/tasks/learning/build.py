"""The network that learns a task: a pre-trained backbone with a new head, or fresh weights.

Layers of a head before its output layer keep the weights of the model's former head if `transformers` calls both by the
same name: BERT's pooler, ModernBERT's dense layer. The dense layer of BERT's masked-LM head has another name, so it is
not reused.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from weft.errors import FolderError, InputError, RecipeError
from weft.interchange.folder import DIALECTS, Description, read_fp32_model
from weft.interchange.weight_map import plan
from weft.model.families import Family, design, find_family
from weft.model.network import Architecture, Network, create_network
from weft.recipe.model import ModelSection
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer
from weft.train.build import Built, dropout_rates, family_settings, fresh_network, token_ids

_UNNAMED = re.compile(r"LABEL_\d+")  # the default label names of transformers
TASK_KEYS = ("id2label", "label2id", "num_labels", "problem_type")  # of a config; they belong to the former task


def from_folder(folder: Path, task: Task, dropout: float | None, seed: int) -> Built:
    network, description = read_fp32_model(folder)
    family = description.family
    if family is None:
        raise FolderError(f"{folder} is in weft's own format, which has no heads for tasks. Give a model of a family.")
    head = task.head_in(family)
    try:
        saved = family.architecture(head, max(task.outputs, 1))
    except RecipeError as error:
        raise InputError(f"{folder} cannot learn {task.name}: {error}") from None
    _check_reads(saved, task)
    rates = {} if dropout is None else dropout_rates(family, set(), dropout)
    fresh = create_network(replace(family, **rates).architecture(head, max(task.outputs, 1)), seed)
    state = _reused_weights(network, fresh, family) | _output_rows_by_label(
        network, fresh, head, description.labels, task.labels
    )
    fresh.load_state_dict(state)
    config = {key: value for key, value in description.config.items() if key not in TASK_KEYS}
    return Built(fresh, saved, replace(description, head=head, labels=task.labels, config=config))


def _reused_weights(loaded: Network, fresh: Network, family: Family) -> dict[str, Tensor]:
    """The loaded weights where name and shape agree, fresh ones elsewhere. Inner layers of a head may come from another
    head; the output layer may not.
    """
    dialect = next(one for one in DIALECTS.values() if type(family) is one.family)
    ours, theirs = (
        {entry.ours: entry.theirs for entry in plan(network, dialect.links(network.architecture, "")).entries}
        for network in (fresh, loaded)
    )
    known, twins = loaded.state_dict(), {names: name for name, names in theirs.items() if ".out." not in name}
    found: dict[str, Tensor] = {}
    for name, tensor in fresh.state_dict().items():
        twin = twins.get(ours.get(name, ()), name)
        found[name] = known[twin] if twin in known and known[twin].shape == tensor.shape else tensor
    return found


def _output_rows_by_label(
    loaded: Network, fresh: Network, head: str, before: Sequence[str], now: Sequence[str]
) -> dict[str, Tensor]:
    """The output layer with the former rows of labels that the loaded model knew; new labels have fresh rows."""
    if not now or not before or all(_UNNAMED.fullmatch(label) for label in before):
        return {}
    known, found = loaded.state_dict(), {}
    for name, tensor in fresh.state_dict().items():
        if name.startswith(f"heads.{head}.out.") and name in known:
            found[name] = tensor.clone()
            for row, label in enumerate(now):
                if label in before:
                    found[name][row] = known[name][before.index(label)]
    return found


def from_family(
    section: ModelSection, task: Task, tokenizer: Tokenizer, length: int, dropout: float | None, seed: int
) -> Built:
    assert section.family is not None
    family = find_family(section.family)
    head = task.head_in(family)
    settings = family_settings(section, tokenizer, length)
    if dropout is not None:
        settings |= dropout_rates(family, set(), dropout)
    chosen, architecture = design(section.family, head=head, labels=max(task.outputs, 1), **settings)
    _check_reads(architecture, task)
    description = Description(chosen, head, task.labels, token_ids(tokenizer, architecture))
    return Built(fresh_network(architecture, seed), architecture, description)


def _check_reads(architecture: Architecture, task: Task) -> None:
    if architecture.is_encoder_decoder and not task.writes:
        raise InputError(
            f"A {architecture.family} is an encoder–decoder. {task.name} needs an encoder (bert, roberta, modernbert "
            "…) or a decoder (gpt2, llama, qwen3)."
        )


def plain_network(saved: Architecture, state: dict[str, Tensor]) -> Network:
    network = Network(saved)
    with torch.no_grad():
        network.load_state_dict(state)
    return network.eval()
