"""A Llama folder as one GGUF file, so that llama.cpp runs the very weights that weft runs."""

from pathlib import Path

import weft
from weft.exports.gguf.write import write_gguf_file

Q8_0, F32 = "q8_0", "fp32"


def write_gguf(folder: Path, file: Path, precision: str = Q8_0) -> Path:
    write_gguf_file(weft.load(folder, "cpu"), file, precision)
    return file
