"""What a model is: its shape, its precision, and its size on disk and in memory."""

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from torch import nn

from weft.compress.lineage import compression_steps, title_of
from weft.folders import MANIFEST
from weft.interchange.folder import MODEL_FILES
from weft.model.network import Network
from weft.model.quantized import QUANTIZED, QuantizedLinear
from weft.tasks.loaded import LoadedModel


def disk_bytes(folder: Path) -> int:
    """Of the files that belong to the model: weights, config, tokenizer. weft.json, which tells its history, and
    weights that are stored a second time in another format are left out.
    """
    files = [file for file in folder.rglob("*") if file.is_file() and _belongs(str(file.relative_to(folder)))]
    is_double = any(file.suffix == ".safetensors" for file in files)
    return sum(file.stat().st_size for file in files if not (is_double and file.suffix == ".bin"))


def _belongs(name: str) -> bool:
    return name != MANIFEST and any(fnmatch(name.partition("/")[0], pattern) for pattern in MODEL_FILES)


def memory_bytes(network: nn.Module) -> int:
    """Of the weights as they are held for inference: parameters and buffers, those that are shared once. What a kernel
    adds (weights in another order, activations) is not counted.
    """
    held = {tensor.data_ptr(): tensor for tensor in (*network.parameters(), *network.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def precision_of(network: Network) -> str:
    """fp32, bf16; int8 or int4, with the number of matrices that stayed as they were."""
    plain = str(next(network.parameters()).dtype).removeprefix("torch.")
    plain = plain.replace("bfloat", "bf").replace("float", "fp")
    if not any(isinstance(part, QUANTIZED) for part in network.modules()):
        return plain
    bits = Counter(part.bits for part in network.modules() if isinstance(part, QuantizedLinear))
    left = sum(type(part) is nn.Linear for part in network.modules())
    kinds = "/".join(f"int{number}" for number in sorted(bits)) or "int8"
    return f"{kinds} ({left} of {left + sum(bits.values())} matrices {plain})" if left else kinds


def shape_of(model: LoadedModel) -> str:
    """bert 6 × 384"""
    architecture = model.network.architecture
    stacks = [part for part in (architecture.encoder, architecture.decoder, architecture.recurrent) if part is not None]
    return f"{architecture.family} {' + '.join(str(part.layers) for part in stacks)} × {architecture.width}"


def steps_between(before: LoadedModel, after: LoadedModel) -> list[str]:
    """What was done to `before` to get `after`, as far as weft.json says."""
    known, steps = compression_steps(before.facts), compression_steps(after.facts)
    return [title_of(step) for step in (steps[len(known) :] if steps[: len(known)] == known else steps)]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path that tells it from the others; `model` says nothing."""
    parts = [[part for part in folder.resolve().parts if part not in ("model", folder.anchor)] for folder in folders]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(one[-count:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]
