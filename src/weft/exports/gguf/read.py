"""Turns a GGUF file into a model folder that weft and `transformers` open: Llama, Qwen2, Qwen3 and GPT-2.

The file's settings give the architecture, the architecture gives every tensor's name and shape, and the file must hold
exactly these. Quantized tensors become float32 numbers. Qwen2 is a Llama with biases on queries, keys and values; the
output bias, which Llama then has as well, is 0.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from weft.errors import FolderError, RecipeError, check_encodable, suggest
from weft.exports.gguf.file import GgufSource
from weft.exports.gguf.links import from_gguf, gguf_links
from weft.exports.gguf.read_settings import GgufSettings, read_rotary
from weft.exports.gguf.read_vocabulary import read_vocabulary
from weft.folders import check_place, known_facts
from weft.interchange.folder import Description, write_model
from weft.interchange.weight_map import Plan, plan
from weft.model.families.family import Family
from weft.model.families.gpt2 import Gpt2
from weft.model.families.llama import Llama, Qwen3
from weft.model.network import Network, count_parameters, outline

_ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2")
_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"
_COMPUTED = "rope_freqs.weight"  # read as a setting


def import_gguf(file: Path, output: Path) -> dict[str, Any]:
    """Writes the folder `output` and returns facts to print. Raises FolderError for a file that is damaged, or holds
    something else than weft can compute.
    """
    place = check_place(output, mark="config.json")
    check_encodable(str(place), "The folder's name")  # safetensors opens no other
    if (known := known_facts(place).get("kind", "model")) != "model":
        raise FolderError(f"{place} is of another kind ({known}). Choose a new folder for the model.")
    with GgufSource(file) as source:
        return _import(source, place)


def _import(source: GgufSource, place: Path) -> dict[str, Any]:
    kind = source.values.get("general.architecture")
    if kind not in _ARCHITECTURES:
        hint, known = suggest(kind, _ARCHITECTURES), ", ".join(_ARCHITECTURES)
        source.refuse(f"the architecture {kind!r} cannot be imported{hint}. Those that can: {known}.")
    if (parts := source.values.get("split.count", 1)) != 1:
        source.refuse(f"it is one of {parts} files of a model. Join them first: llama-gguf-split --merge.")
    family = _family(source, kind)
    network, network_plan = _outline(source, family)
    _check_tensors(source, network_plan, kind)
    vocabulary = read_vocabulary(source, network.architecture.vocabulary)
    _fill(network, network_plan, source, kind)
    description = Description(family, "causal", config=vocabulary.config, generation=vocabulary.generation)
    write_model(network, description, place, files=vocabulary.files, facts={"imported": _readable(source.path.name)})
    stored = sorted({known.stored.name for known in source.tensors.values()})
    facts = {
        "model": str(place),
        "family": family.name,
        "parameters": count_parameters(network),
        "stored as": ", ".join(stored),
        "tokenizer": vocabulary.kind,
    }
    return {**facts, **({"notes": list(vocabulary.notes)} if vocabulary.notes else {})}


def _readable(name: str) -> str:
    """The name of a file, which need not be UTF-8, for a JSON file, which must."""
    return os.fsencode(name).decode("utf-8", "replace")


def _family(source: GgufSource, kind: str) -> Family:
    said = GgufSettings(source, kind)
    shape = source.tensors.get(_EMBEDDING)
    if shape is None or len(shape.shape) != 2:
        source.refuse(f"it has no matrix {_EMBEDDING}.")
    try:
        read = _gpt2 if kind == "gpt2" else _llama
        return read(said, shape.shape[0], kind)
    except RecipeError as error:
        source.refuse(f"its settings make no model: {error}")


def _gpt2(said: GgufSettings, vocabulary: int, kind: str) -> Family:
    said.refuse_unlike_gpt2()
    return Gpt2(
        vocabulary=vocabulary,
        layers=said.integer("block_count"),
        width=said.integer("embedding_length"),
        heads=said.integer("attention.head_count"),
        inner=said.integer("feed_forward_length"),
        positions=said.integer("context_length"),
        epsilon=said.number("attention.layer_norm_epsilon"),
        tied=_is_tied(said.source),
    )


def _llama(said: GgufSettings, vocabulary: int, kind: str) -> Family:
    said.refuse_unlike_llama()
    width, heads = said.integer("embedding_length"), said.integer("attention.head_count")
    head_width = said.integer("attention.key_length", width // max(heads, 1))
    theta, scaling = read_rotary(said, head_width)
    settings: dict[str, Any] = {
        "vocabulary": vocabulary,
        "layers": said.integer("block_count"),
        "width": width,
        "heads": heads,
        "key_value_heads": said.integer("attention.head_count_kv", heads),
        "head_width": head_width,
        "inner": said.integer("feed_forward_length"),
        "positions": said.integer("context_length"),
        "epsilon": said.number("attention.layer_norm_rms_epsilon"),
        "theta": theta,
        "scaling": scaling,
        "tied": _is_tied(said.source),
    }
    if kind == "qwen3":
        return Qwen3(**settings)
    biases: dict[str, Any] = {
        "attention_bias": "blk.0.attn_q.bias" in said.source.tensors,
        "feedforward_bias": "blk.0.ffn_up.bias" in said.source.tensors,
    }
    return Llama(**settings, **biases)


def _is_tied(source: GgufSource) -> bool:
    """Whether the output matrix is the embedding. Some converters write it twice."""
    return _OUTPUT not in source.tensors or source.same_bytes(_OUTPUT, _EMBEDDING)


def _outline(source: GgufSource, family: Family) -> tuple[Network, Plan]:
    try:
        network = outline(family.architecture("causal"))
    except (RecipeError, ValueError, RuntimeError) as error:
        source.refuse(f"its settings make no model: {str(error).splitlines()[0]}")
    return network, plan(network, gguf_links(network.architecture))


def _check_tensors(source: GgufSource, network_plan: Plan, kind: str) -> None:
    required = network_plan.required
    for name, shape in required.items():
        if name not in source.tensors:
            if not _is_zero(name):
                source.refuse(f"it has no {name}{suggest(name, list(source.tensors)[:1000])}.")
        elif source.tensors[name].shape != shape:
            source.refuse(f"{name} has the shape {source.tensors[name].shape}; the settings make it {shape}.")
    known = {*required, *network_plan.tied, *(() if kind == "gpt2" else (_COMPUTED,))}
    for name in source.tensors:
        if name not in known:
            source.refuse(f"it holds {name}, which a {kind} of these settings does not have.")


def _is_zero(name: str) -> bool:
    """Whether the file may leave it out, because it has biases on queries, keys and values only."""
    return name.endswith("attn_output.bias")


@torch.no_grad()
def _fill(network: Network, network_plan: Plan, source: GgufSource, kind: str) -> None:
    loaded: dict[int, nn.Parameter] = {}
    for entry in network_plan.entries:
        empty = network.get_parameter(entry.ours)
        parts = []
        for name, shape in zip(entry.theirs, entry.shapes, strict=True):
            values = source.get(name) if name in source.tensors else np.zeros(shape, np.float32)
            parts.append(from_gguf(name, torch.from_numpy(values.copy()), network.architecture, kind))
        loaded[id(empty)] = nn.Parameter(entry.join(parts, empty.shape))
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, loaded[id(parameter)])
