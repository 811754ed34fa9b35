"""The heads of an encoder, which CTranslate2's format has no place for: saved beside the model.

    heads.json         a list: name, input, pool, activation, norm, labels …
    heads.safetensors  the arrays, such as sequence.out.weight

A dense layer on the first token (BERT's pooler) goes into the model itself as its pooler, and the head continues with
pooler_output. `head_recipe.py` computes the rest. In an export with smaller weights than fp32 these arrays are
float16, unless one holds a number that is too large for it.
"""

from typing import Any

import numpy as np
import safetensors.numpy

from weft.api.model import Model
from weft.exports.ctranslate2.layers import as_array
from weft.folders import to_json
from weft.model.heads import Head
from weft.model.network import Network
from weft.tasks.crf import crf_of

HEADS_FILE, HEAD_WEIGHTS_FILE = "heads.json", "heads.safetensors"
_POOLER_ACTIVATIONS = ("gelu", "gelu-tanh", "relu", "silu", "tanh")


def pooler_of(network: Network) -> Head | None:
    """The head whose dense layer becomes the model's pooler."""
    if network.decoder is not None:
        return None
    return next((network.head(kind) for kind in network.heads if _starts_with_pooler(network.head(kind))), None)


def _starts_with_pooler(head: Head) -> bool:
    dense = head.spec.dense
    is_plain = dense is not None and dense.norm is None and dense.activation in _POOLER_ACTIVATIONS
    return is_plain and head.spec.pool == "first"


def head_files(model: Model, precision: str) -> dict[str, bytes]:
    """Empty for models without heads, and for decoders, whose head is part of the model."""
    network = model.network
    if network.decoder is not None:
        return {}
    pooler = pooler_of(network)
    heads = [head for head in map(network.head, network.heads) if head.out is not None]
    if not heads:
        return {}
    arrays = {name: array for head in heads for name, array in _arrays(head, head is pooler).items()}
    arrays |= _crf_arrays(model)
    fits = all(np.abs(array).max(initial=0.0) <= np.finfo(np.float16).max for array in arrays.values())
    dtype = np.float16 if fits and precision != "fp32" else np.float32
    return {
        HEADS_FILE: to_json([_description(head, model.labels, head is pooler) for head in heads]),
        HEAD_WEIGHTS_FILE: safetensors.numpy.save({name: array.astype(dtype) for name, array in arrays.items()}),
    }


def _description(head: Head, labels: tuple[str, ...], has_pooler: bool) -> dict[str, Any]:
    """All that `head_recipe.head_logits` needs besides the arrays."""
    spec, dense = head.spec, None if has_pooler else head.spec.dense
    norm = None if dense is None else dense.norm
    found: dict[str, Any] = {
        "name": spec.kind,
        "input": "pooler_output" if has_pooler else "last_hidden_state",
        "pool": "every" if has_pooler else spec.pool,
        "activation": None if dense is None else dense.activation,
        "norm": None if norm is None else norm.kind,
        "epsilon": None if norm is None else norm.epsilon,
        "scale": 1.0 if spec.scale is None else spec.scale,
    }
    if spec.kind in ("sequence", "token") and len(labels) == spec.outputs:
        found["labels"] = list(labels)
    return found


def _arrays(head: Head, has_pooler: bool) -> dict[str, np.ndarray]:
    parts = {"norm": head.norm, "out": head.out, "dense": None if has_pooler else head.dense}
    return {
        f"{head.spec.kind}.{part}.{name}": as_array(parameter)
        for part, module in parts.items()
        if module is not None
        for name, parameter in module.named_parameters()
    }


def _crf_arrays(model: Model) -> dict[str, np.ndarray]:
    """Of a model that predicts tags with a CRF: its scores, with those of forbidden transitions added."""
    if not getattr(model.task, "crf", False):
        return {}
    crf = crf_of(model.task_network)
    return {
        "crf.transitions": as_array(crf.transitions + crf.bar),
        "crf.start": as_array(crf.start + crf.bar_start),
        "crf.end": as_array(crf.end),
    }
