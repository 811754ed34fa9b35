"""The folder of an export: graphs in `onnx/`, and beside them what a Hugging Face folder has without its weights.

`onnx/model.onnx` is where optimum, sentence-transformers and transformers.js look for a graph. The name is the same in
both precisions, so that they open either without being told.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.api.model import Model
from weft.exports.onnx.graph import OPSET
from weft.exports.onnx.models import begins_in_optimum, graphs_of, has_cache
from weft.exports.onnx.weights import FloatWeights, Int8Weights
from weft.folders import to_json
from weft.interchange.native import MODEL_TYPE
from weft.tasks.catalog import side_files
from weft.tasks.crf import CRF_FILE

GRAPH_FOLDER, _TOKENIZER_CONFIG = "onnx", "tokenizer_config.json"
_WEIGHTS = {"fp32": FloatWeights, "int8": Int8Weights}
_OWN_FORMAT = (
    "No Hugging Face family has this architecture: onnxruntime runs the graph, but optimum and transformers.js do not "
    "open the folder."
)
_CRF_BESIDE = (
    f"The graph gives the scores of each tag. weft chooses tags with a CRF: decode with {CRF_FILE}, or take the best "
    "tag of each token."
)
_OTHER_HEADS = (
    "optimum 0.1 does not begin a text with this model, since it expects heads of width / heads. onnxruntime and "
    "transformers.js do."
)


def write_onnx(model: Model, folder: Path, precision: str) -> dict[str, Any]:
    """Fills an empty folder. Returns facts for weft.json."""
    (folder / GRAPH_FOLDER).mkdir()
    facts: dict[str, Any] = {"opset": OPSET, "graphs": {}}
    external = {}
    for name, make_graph in graphs_of(model).items():
        graph = make_graph(model, _WEIGHTS[precision])
        external[name] = graph.save(folder / GRAPH_FOLDER / name)
        facts["graphs"][f"{GRAPH_FOLDER}/{name}"] = {
            "inputs": _without_numbers(graph.inputs),
            "outputs": _without_numbers(graph.outputs),
        }
    files = files_beside(model, external)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    notes = _notes(model, files)
    return {**facts, **({"notes": notes} if notes else {})}


def _notes(model: Model, files: Iterable[str]) -> list[str]:
    notes = [_CRF_BESIDE] if CRF_FILE in files else []
    if model.format == MODEL_TYPE:
        notes.append(_OWN_FORMAT)
    elif has_cache(model) and not begins_in_optimum(model):
        notes.append(_OTHER_HEADS)
    return notes


def files_beside(model: Model, external: dict[str, bool]) -> dict[str, bytes]:
    """Config, tokenizer, pooling and what a task has beside a model. `external`: which graphs have a second file."""
    files = model.config_files()
    config = json.loads(files["config.json"])
    if config["model_type"] != MODEL_TYPE:
        # transformers.js chooses a file by its precision; fp32 is the name without a suffix.
        config["transformers.js_config"] = {"dtype": "fp32", "use_external_data_format": external}
        files["config.json"] = to_json(config)
    return {**files, **_tokenizer_files(model), **model.pooling.files, **side_files(model.folder)}


def _tokenizer_files(model: Model) -> dict[str, bytes]:
    files = {} if model.own_tokenizer is None else model.own_tokenizer.saved_files()
    if (data := files.get(_TOKENIZER_CONFIG)) is None:
        return files
    config = json.loads(data)
    if not isinstance(config.get("extra_special_tokens"), list):
        return files
    # The older name of the same list: optimum uses transformers 4, which does not open the newer one.
    config["additional_special_tokens"] = config.pop("extra_special_tokens")
    return {**files, _TOKENIZER_CONFIG: to_json(config)}


def _without_numbers(names: Iterable[str]) -> list[str]:
    """`past_key_values.{layer}.key` once, not for each layer."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".{layer}.", name) for name in names))
