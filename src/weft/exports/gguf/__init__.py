"""GGUF, the format of llama.cpp and what is built on it (Ollama, LM Studio …).

links            which tensor of the file holds which parameter
hyperparameters  the settings of an architecture
vocabulary       a tokenizer in llama.cpp's terms
refusals         what llama.cpp cannot compute
write, precision the file, and how its tensors are stored
compare, runtime the file in llama.cpp's server, against weft
file, read       the way back: a file as a model folder
"""

import shlex
from pathlib import Path
from typing import Any

from weft.api.model import Model
from weft.exports.gguf.notes import gguf_notes, gives_vectors
from weft.exports.gguf.refusals import why_not_gguf
from weft.exports.target import Comparison, ExportTarget

_FILE = "model.gguf"
_PRECISIONS = ("fp32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def _write(model: Model, folder: Path, precision: str) -> dict[str, Any]:
    from weft.exports.gguf.write import write_gguf_file

    notes = [*gguf_notes(model), *write_gguf_file(model, folder / _FILE, precision)]
    return {"file": _FILE, **({"notes": notes} if notes else {})}


def _compare(model: Model, folder: Path, precision: str) -> Comparison:
    from weft.exports.gguf.compare import compare_gguf

    return compare_gguf(model, folder / _FILE)


def _next_step(model: Model, folder: Path) -> str:
    file = shlex.quote(str(folder / _FILE))
    if model.network.architecture.is_encoder_decoder:
        return f'llama-completion -m {file} -p "A text"'
    if model.network.architecture.head("causal"):
        return f"llama-server -m {file}"
    if gives_vectors(model):
        return f"llama-server -m {file} --embedding"
    return f'llama-embedding -m {file} --pooling rank --embd-normalize -1 -p "A text"'


GGUF = ExportTarget(
    name="gguf",
    title="GGUF",
    packages=("gguf",),
    runtime="xllamacpp",
    precisions=_PRECISIONS,
    why_not=why_not_gguf,
    write=_write,
    compare=_compare,
    next_step=_next_step,
)
