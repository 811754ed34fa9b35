"""Writes a model as one GGUF file: settings, vocabulary, tensors. Tensors are quantized one at a time."""

import errno
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType, GGUFWriter
from torch import Tensor

from weft.api.model import Model
from weft.exports.gguf.hyperparameters import hyperparameters, rotary_factors
from weft.exports.gguf.links import LEFT_OUT, architecture_name, gguf_links, to_gguf
from weft.exports.gguf.precision import byte_shape, file_type, stored_as, to_stored
from weft.exports.gguf.templates import chat_template
from weft.exports.gguf.token_table import GgufVocabulary
from weft.exports.gguf.vocabulary import gguf_vocabulary
from weft.interchange.weight_map import plan
from weft.model.families.llama import Llama
from weft.model.network import Architecture, Network, create_network
from weft.version import VERSION

# Settings of generation_config.json that llama.cpp takes as its defaults.
_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def write_gguf_file(model: Model, file: Path, precision: str) -> tuple[str, ...]:
    """Returns notes for the user."""
    architecture = model.network.architecture
    name = architecture_name(architecture)
    assert name is not None  # `why_not` was asked
    vocabulary = gguf_vocabulary(model)
    writer = GGUFWriter(file, name)
    try:
        _write_general(writer, model, precision)
        for key, value in _settings(model).items():
            _add(writer, f"{name}.{key}", value)
        _write_vocabulary(writer, vocabulary, model)
        as_f16 = _write_tensors(writer, model.network, precision)
    finally:
        writer.close()
    if as_f16:
        note = f"{as_f16} matrices are stored as f16: their rows are not a multiple of 32 numbers long."
        return (*vocabulary.notes, note)
    return vocabulary.notes


def write_stand_in(model: Model, file: Path) -> None:
    """A file with the model's vocabulary and a network that is as small as can be."""
    small = Llama(model.network.architecture.vocabulary, layers=1, width=32, heads=1, inner=32, tied=True)
    network = create_network(small.architecture())
    stand_in = Model(network, replace(model.description, family=small, head="causal"), model.own_tokenizer)
    write_gguf_file(stand_in, file, "f16")


def _settings(model: Model) -> dict[str, Any]:
    architecture = model.network.architecture
    head = architecture.head("sequence")
    count = 0 if head is None else head.outputs
    labels = model.labels if len(model.labels) == count else [f"LABEL_{number}" for number in range(count)]
    return hyperparameters(architecture, pooling=model.pooling.kind, labels=labels, start=model.start_end.start_id)


def _write_general(writer: GGUFWriter, model: Model, precision: str) -> None:
    said = model.description.config
    writer.add_type("model")
    writer.add_name(_name(model))
    writer.add_description(f"Written by weft {VERSION}.")
    if isinstance(said.get("license"), str):
        writer.add_license(said["license"])
    writer.add_file_type(file_type(precision))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    generation = model.description.generation
    if generation.get("do_sample") is not False:
        for theirs, key in _SAMPLING.items():
            if (value := _sampling_value(key, generation.get(theirs))) is not None:
                kind = GGUFValueType.INT32 if key == "top_k" else GGUFValueType.FLOAT32
                writer.add_key_value(f"general.sampling.{key}", value, kind)


def _sampling_value(key: str, value: Any) -> int | float | None:
    """None: not a number, or none that the file has room for."""
    if type(value) not in (int, float) or not math.isfinite(value):
        return None
    if key == "top_k":
        return int(value) if value == int(value) and 0 <= value < 2**31 else None
    return float(value) if abs(value) <= float(np.finfo(np.float32).max) else None


def _name(model: Model) -> str:
    """What the recipe calls it, or its folder. A run keeps its model in a folder of the name model."""
    recipe = model.facts.get("recipe")
    named = recipe.get("name") if isinstance(recipe, dict) else None
    if isinstance(named, str) and named:
        return named
    return model.family if model.folder is None else model.folder.resolve().name


def _write_vocabulary(writer: GGUFWriter, vocabulary: GgufVocabulary, model: Model) -> None:
    place = "tokenizer.ggml."
    _add(writer, place + "model", vocabulary.model)
    if vocabulary.pre is not None:
        _add(writer, place + "pre", vocabulary.pre)
    if vocabulary.tokens:
        _add(writer, place + "tokens", vocabulary.tokens)
        writer.add_token_types([int(kind) for kind in vocabulary.kinds])
    for key, values in (("scores", vocabulary.scores), ("merges", vocabulary.merges)):
        if values is not None:
            _add(writer, place + key, values)
    for key, value in {**vocabulary.ids, **vocabulary.flags}.items():
        _add(writer, place + key, value)
    if vocabulary.charsmap is not None:
        writer.add_precompiled_charsmap(vocabulary.charsmap)
    if architecture_name(model.network.architecture) == "bert":
        writer.add_token_type_count(max(model.network.architecture.embedding.segments, 1))
    if (template := chat_template(model)) is not None:
        writer.add_chat_template(template)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    """Numbers are unsigned integers or float32, as llama.cpp reads them."""
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case Sequence():
            writer.add_array(key, value)


def _write_tensors(writer: GGUFWriter, network: Network, precision: str) -> int:
    """Returns how many matrices could not be stored in this precision."""
    stored, as_f16 = {}, 0
    for name, tensor in gguf_tensors(network):
        shape = tuple(tensor.shape)
        stored[name] = stored_as(name, shape, precision)
        as_f16 += stored[name].name == "F16" and precision != "f16"
        shape_as_bytes, kind, size = byte_shape(shape, stored[name])
        writer.add_tensor_info(name, shape_as_bytes, kind, size, raw_dtype=stored[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in gguf_tensors(network):
        values = np.ascontiguousarray(tensor.float().numpy())
        with _full_disk():
            writer.write_tensor_data(to_stored(name, values, stored[name]))
    return as_f16


@contextmanager
def _full_disk() -> Iterator[None]:
    """numpy does not say why an array was written in part only, and there is one reason."""
    try:
        yield
    except OSError as error:
        raise error if error.errno is not None else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


def gguf_tensors(network: Network) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the file by name, in order. A tied output matrix is left out: llama.cpp takes the embedding."""
    architecture: Architecture = network.architecture
    parameters = dict(network.named_parameters())
    for entry in plan(network, gguf_links(architecture)).entries:
        parts = entry.split(parameters[entry.ours].detach().cpu())
        for name, part in zip(entry.theirs, parts, strict=True):
            if not name.startswith(LEFT_OUT):
                yield name, to_gguf(name, part, architecture)
    if (factors := rotary_factors(architecture)) is not None:
        yield "rope_freqs.weight", factors
