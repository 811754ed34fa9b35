"""A command that runs an export: in onnxruntime, or in optimum if it writes text and optimum is installed."""

import importlib.util
import json
import shlex
from pathlib import Path

from weft.api.model import Model
from weft.exports.onnx.models import begins_in_optimum, has_cache
from weft.exports.onnx.write import GRAPH_FOLDER
from weft.interchange.native import MODEL_TYPE

_TEXT = "Once upon a time"


def usage_of(model: Model, folder: Path) -> str:
    if not has_cache(model):
        return _python(_reading(model, folder))
    is_known = model.format != MODEL_TYPE and begins_in_optimum(model)
    if is_known and model.network.heads and model.own_tokenizer is not None and _has_optimum():
        return _python(_writing(model, folder))
    return _python(_stepping(model, folder))


def _has_optimum() -> bool:
    return importlib.util.find_spec("optimum") is not None


def _python(lines: list[str]) -> str:
    return f"python -c {shlex.quote('; '.join(lines))}"


def _reading(model: Model, folder: Path) -> list[str]:
    feeds = '"input_ids": ids, "attention_mask": np.ones_like(ids)'
    if model.network.architecture.embedding.segments > 1:
        feeds += ', "token_type_ids": np.zeros_like(ids)'
    return [
        "import numpy as np, onnxruntime, tokenizers",
        f"ids = np.array([{_ids(model, folder)}])",
        f"graph = onnxruntime.InferenceSession({_quoted(folder / GRAPH_FOLDER / 'model.onnx')})",
        f"print(graph.run(None, {{{feeds}}}))",
    ]


def _writing(model: Model, folder: Path) -> list[str]:
    kind = "ORTModelForSeq2SeqLM" if model.network.architecture.is_encoder_decoder else "ORTModelForCausalLM"
    return [
        "from transformers import AutoTokenizer",
        f"from optimum.onnxruntime import {kind} as Model",
        f"folder = {_quoted(folder)}",
        "model, tokenizer = Model.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)",
        f'text = model.generate(**tokenizer("{_TEXT}", return_tensors="pt"), max_new_tokens=64)',
        "print(tokenizer.decode(text[0], skip_special_tokens=True))",
    ]


def _stepping(model: Model, folder: Path) -> list[str]:
    """Without optimum, or what it does not open: weft's own loop around onnxruntime."""
    start = model.start_end.start_id or 0
    prompt = f"[{start}], 64, source=ids" if model.network.architecture.is_encoder_decoder else "ids, 64"
    has_text = model.own_tokenizer is not None
    return [
        "import pathlib, tokenizers",
        "from weft.exports.onnx.runtime import GraphWriter",
        f"ids = {_ids(model, folder)}",
        f"found = GraphWriter(pathlib.Path({_quoted(folder)})).write({prompt})",
        f"print({_tokenizer(folder)}.decode(found))" if has_text else "print(found)",
    ]


def _ids(model: Model, folder: Path) -> str:
    if model.own_tokenizer is None:
        return "[0]"
    return f'{_tokenizer(folder)}.encode("{_TEXT}").ids'


def _tokenizer(folder: Path) -> str:
    return f"tokenizers.Tokenizer.from_file({_quoted(folder / 'tokenizer.json')})"


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
