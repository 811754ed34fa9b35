"""The targets by name. A target's module imports its writer only when it is used."""

from weft.errors import InputError, suggest
from weft.exports.target import ExportTarget

TARGETS = ("onnx", "ctranslate2", "gguf")


def find_target(name: str) -> ExportTarget:
    match name:
        case "onnx":
            from weft.exports.onnx import ONNX

            return ONNX
        case "ctranslate2":
            from weft.exports.ctranslate2 import CTRANSLATE2

            return CTRANSLATE2
        case "gguf":
            from weft.exports.gguf import GGUF

            return GGUF
    raise InputError(f"--to {name} is not a target{suggest(name, TARGETS)}. Targets: {', '.join(TARGETS)}.")
