"""A whole model folder: config.json, weights, tokenizer, weft.json.

Reading is strict. The config gives the architecture, the architecture gives every tensor's name and shape, and the
files must hold exactly these tensors. Memory is allocated after all checks. Three exceptions, because published folders
need them: names without the backbone's prefix (GPT-2), LayerNorm's old `gamma` and `beta`, and a class in the config
with fewer heads than the file (BERT's checkpoint says ForMaskedLM and holds ForPreTraining). A tied matrix that is
stored twice with different values is untied, as in transformers.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import FolderError, RecipeError, not_found, suggest
from weft.folders import MANIFEST, known_facts, manifest, read_json, replace_folder, to_json
from weft.interchange import native
from weft.interchange.bert import BERT, DISTILBERT, ROBERTA
from weft.interchange.config_values import check_type
from weft.interchange.dialect import Dialect
from weft.interchange.gpt2 import GPT2
from weft.interchange.llama import LLAMA, QWEN3
from weft.interchange.marian import MARIAN
from weft.interchange.modernbert import MODERNBERT
from weft.interchange.pooling import POOLING_FILES
from weft.interchange.quantized_entries import fill_quantized, outline_quantized, stored_matrices, why_not_fp32
from weft.interchange.t5 import T5_DIALECT
from weft.interchange.tensor_files import FLOAT_TYPES, SINGLE_FILE, TensorFiles, write_tensors
from weft.interchange.torchao import QuantizedFiles, encoded_file, is_packed, quantization_config
from weft.interchange.weight_map import Plan, plan
from weft.model.families.family import Family
from weft.model.network import Architecture, Network, outline
from weft.model.quantized import quantized_modules
from weft.tokenizer.read import TOKENIZER_FILES as TOKENIZER_FILES
from weft.version import VERSION

DIALECTS = {
    dialect.model_type: dialect
    for dialect in (BERT, ROBERTA, DISTILBERT, GPT2, T5_DIALECT, MARIAN, LLAMA, QWEN3, MODERNBERT)
}
OWN_FORMAT = "No Hugging Face family has this architecture: it is saved in weft's own format, which only weft opens."
_OWN_FORMAT_QUANTIZED = (
    "transformers opens no quantized GPT-2, whose matrices it stores transposed: this one is saved in weft's own "
    "format, which only weft opens."
)
_GENERATION_FILE, _MOST_LABELS = "generation_config.json", 1_000_000
# Files that belong to a model folder. Saving leaves the user's other files in place.
MODEL_FILES = (
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"),
    *("config.json", _GENERATION_FILE, MANIFEST, "crf.safetensors"),
    *TOKENIZER_FILES,
    *(name.partition("/")[0] for name in POOLING_FILES),
)


@dataclass(frozen=True)
class Description:
    """What a folder holds besides the network."""

    family: Family | None  # None: weft's own format
    head: str
    labels: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)  # config.json as read; saving keeps its other keys
    generation: dict[str, Any] = field(default_factory=dict)  # generation_config.json
    notes: tuple[str, ...] = ()  # for the user


@dataclass(frozen=True)
class _Match:
    """An architecture whose tensors are exactly those in the files."""

    network: Network
    plan: Plan
    family: Family | None
    head: str
    notes: tuple[str, ...] = ()


def read_model(folder: Path) -> tuple[Network, Description]:
    network, description, fill = _open(folder)
    with _errors_name(folder):
        fill()
    return network.eval(), description


def read_fp32_model(folder: Path) -> tuple[Network, Description]:
    """As `read_model`, for training. Raises FolderError for a quantized model."""
    network, description = read_model(folder)
    if reason := why_not_fp32(network, known_facts(folder)):
        raise FolderError(f"{folder} cannot be trained. {reason}")
    return network, description


def read_outline(folder: Path) -> tuple[Network, Description]:
    """As `read_model`, with all checks, but without reading weights or allocating memory."""
    network, description, _ = _open(folder)
    return network, description


def _open(folder: Path) -> tuple[Network, Description, Callable[[], None]]:
    config = read_model_config(folder)
    with _errors_name(folder):
        return _open_as(folder, config)


@contextmanager
def _errors_name(folder: Path) -> Iterator[None]:
    try:
        yield
    except FolderError as error:
        raise error if str(folder) in str(error) else FolderError(f"{folder}: {error}") from None


def _open_as(folder: Path, config: dict[str, Any]) -> tuple[Network, Description, Callable[[], None]]:
    files = QuantizedFiles(TensorFiles(folder))
    names = _modern_names(files)
    match = _match(config, files, names)
    outline_quantized(match.network, match.plan, files, names)
    generation = read_json(folder / _GENERATION_FILE) if (folder / _GENERATION_FILE).is_file() else {}
    description = Description(match.family, match.head, _labels(config), config, generation, match.notes)
    return match.network, description, lambda: _fill(match.network, match.plan, files, names)


def read_model_config(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise FolderError(not_found(folder))
    if not folder.is_dir():
        raise FolderError(f"{folder} is a file, not a model folder.")
    if not (folder / "config.json").is_file():
        hint = f" (did you mean {folder / 'model'}?)" if (folder / "model" / "config.json").is_file() else ""
        raise FolderError(f"{folder} is not a model folder: it has no config.json{hint}.")
    config = read_json(folder / "config.json", most_bytes=10_000_000)
    kind = config.get("model_type")
    if not isinstance(kind, str) or (kind != native.MODEL_TYPE and kind not in DIALECTS):
        known = [*DIALECTS, native.MODEL_TYPE]
        hint = suggest(kind, known) if isinstance(kind, str) else ""
        raise FolderError(
            f"{folder / 'config.json'}: the model_type {kind!r} is not supported{hint}. Known: {', '.join(known)}."
        )
    return config


def read_architecture(config: dict[str, Any]) -> tuple[Architecture, Family | None, str]:
    try:
        if config["model_type"] == native.MODEL_TYPE:
            architecture = native.read_config(config)
            return architecture, None, str(config.get("head", "none"))
        dialect = DIALECTS[config["model_type"]]
        family, head = dialect.read_family(config), dialect.head_of(config)
        return family.architecture(head, len(_labels(config)) or 2), family, head
    except FolderError:
        raise
    except RecipeError as error:
        raise FolderError(f"config.json: {error}") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        # Values are checked where they are read. This catches JSON of an unexpected structure.
        raise FolderError(f"config.json holds a value of the wrong type: {str(error).splitlines()[0]}.") from error


def write_model(
    network: Network,
    description: Description,
    folder: Path,
    *,
    files: dict[str, bytes] | None = None,
    facts: dict[str, Any] | None = None,
) -> str:
    """Write the folder atomically. `files`: the tokenizer's and others, by name. Returns the `model_type`."""
    config, network_plan, tensors = _describe(network, description)
    parameters = dict(network.named_parameters())
    for entry in network_plan.entries:
        if entry.ours in parameters:
            parts = entry.split(parameters[entry.ours].detach().cpu())
            tensors |= dict(zip(entry.theirs, parts, strict=True))
    tensors |= {name: tensors[original].clone() for name, original in network_plan.copies.items()}
    matrices = stored_matrices(network, network_plan)
    stored, header = encoded_file(tensors, matrices, packed=is_packed(description.config))
    with replace_folder(folder, mark="config.json", ours=MODEL_FILES) as new:
        write_tensors(stored, new / SINGLE_FILE, header)
        for name, data in {**_config_files(config, network, description), **(files or {})}.items():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_bytes(data)
        known = {"weft": VERSION, "kind": "model", "family": network.architecture.family, **(facts or {})}
        (new / MANIFEST).write_bytes(to_json(manifest(new, **known)))
    return config["model_type"]


def config_files_of(network: Network, description: Description) -> dict[str, bytes]:
    """config.json and, for a model that writes, generation_config.json."""
    return _config_files(_describe(network, description)[0], network, description)


def _config_files(config: dict[str, Any], network: Network, description: Description) -> dict[str, bytes]:
    files = {"config.json": to_json(config)}
    if (generation := _generation_config(network.architecture, config)) is not None:
        files[_GENERATION_FILE] = to_json({**generation, **description.generation})
    return files


def save_format(network: Network, description: Description) -> str:
    """The `model_type` this model is saved under: a Hugging Face family's, or weft's own."""
    return _describe(network, description)[0]["model_type"]


def why_own_format(network: Network) -> str:
    """Why a model is saved in weft's own format, in a sentence."""
    is_gpt2 = network.architecture.family == "gpt2" and bool(quantized_modules(network))
    return _OWN_FORMAT_QUANTIZED if is_gpt2 else OWN_FORMAT


def _describe(network: Network, description: Description) -> tuple[dict[str, Any], Plan, dict[str, Tensor]]:
    """The config, the weight names, and computed tensors that transformers expects in the file."""
    architecture, family, head = network.architecture, description.family, description.head
    quantized = quantized_modules(network)
    named = outline(architecture) if quantized else network  # a quantized matrix is no parameter, so it has no name
    dialect = next((d for d in DIALECTS.values() if type(family) is d.family and head in d.classes), None)
    if dialect is None or family is None or not _is_expressible(dialect, family, head, architecture, quantized):
        kept = {key: value for key, value in description.config.items() if key.endswith("token_id")}
        own = {"head": head, **kept, **_label_config(architecture, description.labels)}
        return {**native.write_config(architecture), **own}, plan(named, native.links(named)), {}
    # Keys of the architecture come from the network; other keys (token ids, task parameters) stay.
    written = dialect.write_config(family, head, architecture.vocabulary)
    tokens = {key: value for key, value in written.items() if key.endswith("token_id") and key in description.config}
    kept = {key: value for key, value in description.config.items() if key not in written or key in tokens}
    kept.pop("quantization_config", None)
    config = {**written, **kept, **_label_config(architecture, description.labels)}
    if quantized:
        config["quantization_config"] = quantization_config(quantized.values(), packed=is_packed(description.config))
    if architecture.is_encoder_decoder:
        config["is_encoder_decoder"] = True
    config["dtype"] = str(next(network.parameters()).dtype).removeprefix("torch.")
    config.pop("torch_dtype", None)
    network_plan = plan(named, dialect.links(architecture, dialect.prefix(head)))
    return dict(sorted(config.items())), network_plan, dialect.tables(architecture, head)


def _is_expressible(
    dialect: Dialect, family: Family, head: str, architecture: Architecture, quantized: Container[str]
) -> bool:
    """Whether this family's config, read again, gives the same architecture, and transformers opens its quantized
    matrices: not those of GPT-2, which it stores transposed.
    """
    if any(item.transposed and item.ours in quantized for item in dialect.links(architecture, "")):
        return False
    labels = architecture.heads[-1].outputs if architecture.heads else 2
    try:
        written = dialect.write_config(family, head, architecture.vocabulary)
        return dialect.read_family(written).architecture(head, labels) == architecture
    except RecipeError:  # the family's config implies a shape that cannot be, such as a width that heads do not divide
        return False


def _match(config: dict[str, Any], files: QuantizedFiles, names: dict[str, str]) -> _Match:
    """The first architecture that the tensors fit. Raises FolderError for the one with the fewest problems."""
    problems: list[tuple[int, str]] = []
    for candidate in _readings(config, files, names):
        trouble = _problems(candidate.plan, config["model_type"], files, names)
        if not trouble:
            return candidate
        problems.append((len(trouble), trouble[0]))
    raise FolderError(min(problems, key=lambda problem: problem[0])[1])


def _readings(config: dict[str, Any], files: QuantizedFiles, names: dict[str, str]) -> Iterable[_Match]:
    architecture, family, head = read_architecture(config)
    if family is None:
        try:
            network = outline(architecture)
        except ValueError as error:
            raise FolderError(f"config.json: {error}.") from None
        yield _Match(network, plan(network, native.links(network)), None, head)
        return
    dialect, labels = DIALECTS[config["model_type"]], len(_labels(config)) or 2
    for other in [head, *(name for name in dialect.classes if name != head)]:
        network, network_plan = _outline(dialect, family, other, labels, names)
        if _differing(network_plan.tied, files, names):
            untied = replace(family, tied=False)
            network, network_plan = _outline(dialect, untied, other, labels, names)
            yield _Match(
                network,
                network_plan,
                untied,
                other,
                ("The output matrix is untied.",),
            )
        elif other == head:
            yield _Match(network, network_plan, family, head)
        else:
            note = f"config.json says {dialect.classes[head]}, the weights are those of {dialect.classes[other]}."
            yield _Match(network, network_plan, family, other, (note,))


def _outline(dialect: Dialect, family: Family, head: str, labels: int, names: Iterable[str]) -> tuple[Network, Plan]:
    """The network and its weight names, with the backbone's prefix if the file uses it."""
    prefix = dialect.prefix(head)
    prefix = prefix if any(name.startswith(prefix) for name in names) else ""
    network = outline(family.architecture(head, labels))
    return network, plan(network, dialect.links(network.architecture, prefix)).adapted(set(names))


def _differing(pairs: dict[str, str], files: QuantizedFiles, names: dict[str, str]) -> list[str]:
    """Stored tensors that differ from the tensor they should equal."""
    return [
        alias
        for alias, original in pairs.items()
        if alias in names and original in names and not torch.equal(files.get(names[alias]), files.get(names[original]))
    ]


def _problems(network_plan: Plan, model_type: str, files: QuantizedFiles, names: dict[str, str]) -> list[str]:
    required = network_plan.required
    ignored = DIALECTS[model_type].ignored if model_type in DIALECTS else ()
    known = {*required, *network_plan.tied, *network_plan.aliases, *network_plan.copies}
    missing = [name for name in required if name not in names]
    surplus = [
        name for name in names if name not in known and not any(re.fullmatch(pattern, name) for pattern in ignored)
    ]
    problems = [f"The weights lack {name}." for name in missing]
    if missing and surplus:  # suggestions are slow: only for the message that is shown
        problems[0] = f"The weights lack {missing[0]}{suggest(missing[0], surplus[:1000])}."
    problems += [f"The weights hold {name}, which a {model_type} of this shape does not have." for name in surplus]
    for name, shape in required.items():
        if name in names and files.shapes[names[name]] != shape:
            problems.append(f"{name} has shape {files.shapes[names[name]]}; config.json makes it {shape}.")
        elif name in names and files.stored_as(names[name]) not in FLOAT_TYPES:
            problems.append(f"{name} is stored as {files.stored_as(names[name])}; weights must be floats.")
    for name in [] if problems else _differing(network_plan.aliases, files, names):
        problems.append(f"{name} should equal {network_plan.aliases[name]}, but it holds other values.")
    return problems


@torch.no_grad()
def _fill(network: Network, network_plan: Plan, files: QuantizedFiles, names: dict[str, str]) -> None:
    """Load the weights in float32 into the outlined network. Tied parameters stay tied."""
    loaded: dict[int, nn.Parameter] = {}
    for entry in network_plan.entries:
        if fill_quantized(network, entry, files, names):
            continue
        empty = network.get_parameter(entry.ours)
        parts = [files.get(names[name]).float() for name in entry.theirs]
        loaded[id(empty)] = nn.Parameter(entry.join(parts, empty.shape), requires_grad=empty.requires_grad)
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, loaded[id(parameter)])


def _modern_names(files: QuantizedFiles) -> dict[str, str]:
    """Current name of each tensor -> its name in the file."""
    names: dict[str, str] = {}
    for name in files.shapes:
        modern = re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))
        if modern in names:
            raise FolderError(f"The weights hold both {names[modern]} and {name}, which are names of the same tensor.")
        names[modern] = name
    return names


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    table = config.get("id2label")
    if table is None:
        count = check_type(config.get("num_labels", 0), int, "num_labels")
        if not 0 <= count <= _MOST_LABELS:
            raise FolderError(f"config.json: num_labels is {count}; it must be from 0 to {_MOST_LABELS:,}.")
        return tuple(f"LABEL_{i}" for i in range(count))
    try:
        return tuple(str(table[key]) for key in sorted(table, key=int))
    except (TypeError, ValueError, AttributeError) as error:
        raise FolderError("config.json: id2label must map numbers to names.") from error


def _label_config(architecture: Architecture, labels: tuple[str, ...]) -> dict[str, Any]:
    head = architecture.heads[0] if architecture.heads else None
    if head is None or head.kind not in ("sequence", "token") or (head.outputs == 2 and not labels):
        return {}
    names = labels if len(labels) == head.outputs else tuple(f"LABEL_{i}" for i in range(head.outputs))
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def _generation_config(architecture: Architecture, config: dict[str, Any]) -> dict[str, Any] | None:
    if architecture.head("causal") is None and architecture.head("seq2seq") is None:
        return None
    keys = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")
    return {key: config[key] for key in keys if config.get(key) is not None}
