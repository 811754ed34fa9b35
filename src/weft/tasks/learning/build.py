"""The network that learns a task: a pre-trained backbone with a head for it, or fresh weights.

The parts of a head that come before its output layer are taken over from another head of the model where
`transformers` has one name for both: BERT's pooler, ModernBERT's dense layer. BERT's guess at masked words has such a
layer, too, but it is another.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from weft.errors import FolderError, InputError, RecipeError
from weft.interchange.folder import DIALECTS, Description, read_model
from weft.interchange.weight_map import plan
from weft.model.families import Family, design, find_family
from weft.model.network import Architecture, Network, create_network
from weft.recipe.model import ModelSection
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer
from weft.train.build import Built, dropout_rates, family_settings, fresh_network, token_ids

_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls labels that nobody has named
OF_TASK = ("id2label", "label2id", "num_labels", "problem_type")  # keys of a config that another task has left


def from_folder(folder: Path, task: Task, dropout: float | None, seed: int) -> Built:
    network, description = read_model(folder)
    family = description.family
    if family is None:
        raise FolderError(f"{folder} is in weft's own format: no family's, so it cannot be given the head of a task.")
    head = task.head_in(family)
    try:
        saved = family.architecture(head, max(task.outputs, 1))
    except RecipeError as error:
        raise InputError(f"{folder} cannot learn {task.name}: {error}") from None
    _check_reads(saved, task)
    rates = {} if dropout is None else dropout_rates(family, set(), dropout)
    fresh = create_network(replace(family, **rates).architecture(head, max(task.outputs, 1)), seed)
    state = _taken_over(network, fresh, family) | _rows_by_label(network, fresh, head, description.labels, task.labels)
    fresh.load_state_dict(state)
    config = {key: value for key, value in description.config.items() if key not in OF_TASK}
    return Built(fresh, saved, replace(description, head=head, labels=task.labels, config=config))


def _taken_over(loaded: Network, fresh: Network, family: Family) -> dict[str, Tensor]:
    """Weights by name; an inner part of a head may come from another head; an output layer must be the same one, in
    name and size.
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


def _rows_by_label(
    loaded: Network, fresh: Network, head: str, before: Sequence[str], now: Sequence[str]
) -> dict[str, Tensor]:
    """An output layer whose rows had names: each label that it knew takes its row along, others begin fresh."""
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
            f"A {architecture.family} reads with its encoder and writes with its decoder; {task.name} takes an encoder "
            "(bert, roberta, modernbert …) or a decoder (gpt2, llama, qwen3)."
        )


def plain_network(saved: Architecture, state: dict[str, Tensor]) -> Network:
    network = Network(saved)
    with torch.no_grad():
        network.load_state_dict(state)
    return network.eval()
